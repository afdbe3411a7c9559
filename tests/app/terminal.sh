#!/bin/sh
# terminal.sh PROGRAM MKMODEL - a chat on a terminal, driven through tmux: type, edit, continue, several lines, interrupt,
# reset, the context full, save, history, colours, quit. Exit status 77: skipped (no tmux).
set -eu
program=$1
mkmodel=$2
command -v tmux >/dev/null || { echo "skip: there is no tmux"; exit 77; }
here=$(mktemp -d /tmp/aerie-terminal-XXXXXX)
n_servers=0 # a server that ends takes a while; each start has its own
t() { tmux -S "$here/socket$n_servers" -f /dev/null "$@"; }
finish() { t kill-server 2>/dev/null || true; rm -rf "$here"; }
trap finish EXIT
trap 'exit 1' INT TERM
"$mkmodel" --shape tiny --type q4_0 "$here/m.gguf" >/dev/null 2>&1

screen() { t capture-pane -p -J -S -2000; }
# Waits until the screen holds a text as often as given (default once).
expect() {
    i=0
    while [ "$(screen | grep -c -F -e "$1" || true)" -lt "${2:-1}" ]; do
        i=$((i + 1))
        if [ $i -gt 600 ]; then
            echo "expected '$1' ${2:-1} times; the screen is:"
            screen
            exit 1
        fi
        sleep 0.1
    done
}
keys() { t send-keys "$@"; }
# Types a line once the prompt stands at the bottom.
prompt() {
    i=0
    until screen | sed '/^$/d' | tail -n 1 | grep -q '^>$\|^> $'; do
        i=$((i + 1))
        [ $i -le 600 ] || { echo "no prompt; the screen is:"; screen; exit 1; }
        sleep 0.1
    done
}
line() { prompt; keys -l "$1"; keys Enter; }

start() { # options of the program
    t kill-server 2>/dev/null || true
    n_servers=$((n_servers + 1))
    t new-session -d -x 200 -y 50 "env -i HOME=$here XDG_STATE_HOME=$here/state TERM=screen PATH=$PATH \
${environment:-} LC_ALL=C.UTF-8 $program run -m $here/m.gguf --temp 0 --ignore-eos $* 2>&1; echo status \$?; sleep 600"
}
pass() { echo "ok: $1"; }

# ---- type, edit, figures ----
start -n 12 --kv-type f16
expect "/help lists commands"
prompt
keys -l "xhello wrld"
keys Left Left Left
keys -l o
keys C-a DC
keys Enter
prompt
line "/save $here/one.json"
expect "saved 2 messages"
grep -F -q '"content": "hello world"' "$here/one.json"
line "/stats"
expect "generated 12 tokens"
pass "a line is typed and edited, an answer comes"

# ---- continue: the cache is used; several lines ----
line 'two lines \'
expect "... "
keys -l 'end here'
keys Enter
prompt
line '"""a block'
keys -l 'its end"""'
keys Enter
line "/stats"
expect "generated 36 tokens"
screen | grep -q "([1-9][0-9]* cached)" || { echo "nothing was cached"; screen; exit 1; }
line "/save $here/three.json"
expect "saved 6 messages"
grep -F -q '"two lines \nend here"' "$here/three.json"
grep -F -q '"a block\nits end"' "$here/three.json"
line "/save $here/one.json"
expect "give another name"
pass "turns, messages of several lines, /save"

# ---- commands ----
line "/nonsense"
expect "there is no command '/nonsense'"
line "/system be brief"
expect "the system message is set"
line "/drop"
expect "forgot 1 turn; 2 left"
line "/reset"
expect "the conversation is forgotten; the system message stays"
line "/save $here/reset.json"
expect "saved 1 message to"
line "/help"
expect "/drop [N]"
pass "/system, /drop, /reset, /help"

# ---- history: the newest message again ----
prompt
keys Up Up Up Up Up Up C-u
keys -l "/quit"
keys Enter
expect "status 0"
grep -q "wrld\|two" "$here/state/aerie/history"
[ "$(stat -c %a "$here/state/aerie/history")" = 600 ] || { echo "the history can be read by others"; exit 1; }
start -n 4
expect "/help lists commands"
prompt
keys Up
expect "> /quit"
keys C-u
keys C-d
expect "status 0"
pass "history, Ctrl-D"

# ---- interrupt an answer, and the prompt ----
start -c 100000
expect "/help lists commands"
line "go on for ever"
sleep 2
keys C-c
prompt
line "/save $here/cut.json"
expect "saved 2 messages"
prompt
keys -l "not sent"
keys C-c
expect "Ctrl-C again or Ctrl-D ends"
line "/stats"
expect "prompt "
prompt
keys C-c
expect "Ctrl-C again or Ctrl-D ends" 2
keys C-c
expect "status 0"
pass "Ctrl-C stops an answer, drops a line, ends at the second"

# ---- the context is full ----
start -c 120
expect "/help lists commands"
line "fill it up"
expect "so the answer ends here. Nothing is lost"
line "one more"
expect "The message was taken back"
line "/save $here/full.json"
expect "saved 2 messages"
line "/reset"
expect "the conversation is forgotten"
line "again"
expect "so the answer ends here. Nothing is lost" 2
prompt
keys C-d
expect "status 0"
pass "a full context loses nothing"

# ---- colours ----
start -n 60 --color-drafts --spec-type draft -md "$here/m.gguf" --spec-fixed
expect "colours: plain is decoded"
line "colour me"
line "/stats"
expect "generated 60 tokens"
t capture-pane -p -e -S -2000 | grep -q "$(printf '\033')\[3[2-6]m" || { echo "no colour"; t capture-pane -p -e; exit 1; }
environment="NO_COLOR=1" start -n 60 --color-drafts --spec-type draft -md "$here/m.gguf" --spec-fixed
expect "/help lists commands"
line "colour me not"
line "/stats"
expect "generated 60 tokens"
if t capture-pane -p -e -S -2000 | grep -q "$(printf '\033')\[3[2-6]m"; then echo "coloured against NO_COLOR"; exit 1; fi
pass "colours, and none with NO_COLOR"
