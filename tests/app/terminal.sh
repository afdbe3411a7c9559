#!/bin/sh
# terminal.sh PROGRAM MKMODEL - a chat on a terminal, driven through tmux: type, edit, paste, complete, continue, several lines,
# interrupt, reset, the context full, save, load, read, regenerate, history, colours, wrapped lines, files at the
# end, quit. Exit status 77: skipped (no tmux, or no libedit).
set -eu
program=$1
mkmodel=$2
"$program" doctor 2>/dev/null | grep -q '^ *built in .*libedit' || { echo "skip: $program was built without libedit"; exit 77; }
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
    t new-session -d -x ${columns:-200} -y 50 "env -i HOME=$here XDG_STATE_HOME=$here/state TERM=screen PATH=$PATH \
${environment:-} LC_ALL=C.UTF-8 $program run -m $here/m.gguf --temp 0 --ignore-eos $* 2>&1; echo status \$?; sleep 600"
}
pass() { echo "ok: $1"; }

# ---- what is typed while the model is loaded: pastes are marked from the start, and keys wait quietly ----
t kill-server 2>/dev/null || true
n_servers=$((n_servers + 1))
t new-session -d -x 200 -y 50 "until [ -e $here/go ]; do sleep 0.05; done; env -i HOME=$here XDG_STATE_HOME=$here/state \
TERM=screen PATH=$PATH LC_ALL=C.UTF-8 $program run -m $here/m.gguf --temp 0 --ignore-eos -n 4 2>&1; echo status \$?; sleep 600"
t pipe-pane "cat > $here/raw"
touch "$here/go"
expect "/help lists commands"
at() { grep -a -b -o -e "$1" "$here/raw" | head -n 1 | cut -d: -f1; }
[ "$(at '2004h')" -lt "$(at 'speculation:')" ] || { echo "pastes are marked only after the model was loaded"; exit 1; }
line "/quit"
expect "status 0"
pass "pastes are marked before the model is loaded"

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
expect "it exists; '/save! $here/one.json' replaces it"
grep -F -q '"content": "hello world"' "$here/one.json"
[ "$(grep -c role "$here/one.json")" = 2 ] || { echo "one.json was overwritten"; exit 1; }
line "/save! $here/one.json"
expect "saved 6 messages to '$here/one.json', replacing what it held"
line "/save -f $here/three.json"
expect "saved 6 messages to '$here/three.json', replacing what it held"
cmp "$here/one.json" "$here/three.json"
line "/save"
expect "saved 6 messages to '$here/three.json', replacing what it held" 2
echo "[]" >"$here/three.json" # by somebody else
line "/save $here/three.json"
expect "it exists; '/save! $here/three.json'"
line "/save! $here"
expect "it is a folder"
line "/save $here/nowhere/x.json"
expect "No such file or directory"
ln -s one.json "$here/link.json"
chmod 640 "$here/one.json"
line "/save! $here/link.json"
expect "saved 6 messages to '$here/link.json'"
[ -L "$here/link.json" ] && [ "$(stat -c %a "$here/one.json")" = 640 ] ||
    { echo "link or mode is gone"; ls -l "$here"; exit 1; }
[ -z "$(find "$here" -name '*.part')" ] || { echo "a temporary file is left"; exit 1; }
pass "turns, messages of several lines, /save"

# ---- commands ----
line "/nonsense"
expect "there is no command '/nonsense'; /help"
line "/sav x"
expect "did you mean '/save'?"
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
for name in /reset /system /regen /read /save /load /stats /quit; do expect "$name "; done
pass "/system, /drop, /reset, /help"

# ---- load, read, regenerate ----
line "/load $here/one.json"
expect "loaded 6 messages (3 turns) from '$here/one.json'"
line "/save $here/again.json"
expect "saved 6 messages to '$here/again.json'"
cmp "$here/one.json" "$here/again.json"
line "/regen"
expect "the same message gets the same answer"
line "/save $here/regen.json"
expect "saved 6 messages to '$here/regen.json'"
cmp "$here/one.json" "$here/regen.json"
line "/drop 2"
expect "forgot 2 turns; 1 left"
refuse() { # text of the file, sentence
    printf "$1" >"$here/bad.json"
    line "/load $here/bad.json"
    expect "$2"
}
refuse '[{"role":' "is not JSON: line 1"
refuse '{}' "contains no list of messages"
refuse '[{"role":"tool","content":"x"}]' "message 1 has the role 'tool'; known are"
refuse '[{"role":"user","content":"x"},{"role":"system","content":"x"}]' "message 2 is a system message"
refuse '[{"role":"user","content":7}]' "the content of message 1 is not a string"
refuse '[7]' "message 1 has the role ''"
refuse 'a\000b' "is not a file of UTF-8 text: byte 1 is 0x00"
mkfifo "$here/pipe"
line "/load $here/pipe"
expect "cannot read '$here/pipe': it is a pipe"
line "/read $here/pipe"
expect "cannot read '$here/pipe': it is a pipe" 2
line "/read $here"
expect "cannot read '$here': it is a folder"
line "/read /dev/zero"
expect "cannot read '/dev/zero': it is a device"
line "/read $here/missing"
expect "cannot read '$here/missing': No such file"
line "/read $program"
expect "is not a file of UTF-8 text: byte"
truncate -s 5M "$here/large"
line "/read $here/large"
expect "is larger than 4.00 MiB"
line "/read"
expect "/read needs the name"
line "/load"
expect "/load needs the name"
line "/save $here/left.json" # nothing of this changed the conversation
expect "saved 2 messages to '$here/left.json'"
printf 'from a file' >"$here/some text.txt"
line "/read '$here/some text.txt'"
expect "read 11 bytes from '$here/some text.txt'"
line "and more"
line "/read $here/some text.txt"
expect "read 11 bytes from '$here/some text.txt'" 2
prompt
keys Enter
line "/save $here/read.json"
expect "saved 6 messages to '$here/read.json'"
grep -F -q '"content": "from a file\nand more"' "$here/read.json"
grep -F -q '"content": "from a file\n"' "$here/read.json"
echo '{"messages": [{"role": "user", "content": "asked before"}]}' >"$here/asked.json"
line "/load $here/asked.json"
expect "loaded 1 message (1 turn) from '$here/asked.json', in place of the conversation so far; /regen answers"
line "/regen"
line "/save $here/answered.json"
expect "saved 2 messages to '$here/answered.json'"
line "/reset"
expect "the conversation is forgotten"
line "/regen"
expect "there is no message to answer again"
pass "/load, /read, /regen"

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
start -c 160 -n 24 -sys short
expect "/help lists commands"
for i in 1 2 3 4 5 6; do line "fill it up with turn number $i"; done
expect "the context of 160 tokens is full: the oldest turn is forgotten"
line "/save $here/full.json"
expect "messages to '$here/full.json'"
grep -F -q '"role": "system"' "$here/full.json"
grep -F -q 'turn number 6' "$here/full.json"
if grep -F -q 'turn number 1"' "$here/full.json"; then echo "the oldest turn is still there"; exit 1; fi
[ $(($(grep -c role "$here/full.json") % 2)) = 1 ] || { echo "half a turn was forgotten"; cat "$here/full.json"; exit 1; }
line "$(printf 'long %.0s' $(seq 60))"
expect "the message is too long: it takes"
line "/save $here/kept.json"
expect "messages to '$here/kept.json'"
cmp "$here/full.json" "$here/kept.json"
printf '[' >"$here/many.json"
for i in $(seq 40); do printf '{"role":"user","content":"q%s"},{"role":"assistant","content":"a"},' $i; done >>"$here/many.json"
printf '{"role":"user","content":"the last one"}]' >>"$here/many.json"
line "/load $here/many.json"
expect "loaded 81 messages (41 turns)"
line "/regen"
expect "oldest turns are forgotten"
line "/save $here/few.json"
expect "messages to '$here/few.json'"
grep -F -q '"the last one"' "$here/few.json"
grep -F -q '"q40"' "$here/few.json"
prompt
keys C-d
expect "status 0"
start -c 120
expect "/help lists commands"
line "go on to the end"
expect "so the answer ends here; your next message makes room"
line "again"
expect "the oldest turn is forgotten"
prompt
keys C-d
expect "status 0"
pass "a full context forgets the oldest turns"

# ---- /regen draws anew ----
start -n 16 --temp 1 --seed 5
expect "/help lists commands"
line "surprise me"
line "/save $here/draw1.json"
expect "saved 2 messages"
line "/regen"
line "/save $here/draw2.json"
expect "saved 2 messages" 2
line "/regen"
line "/save $here/draw3.json"
expect "saved 2 messages" 3
if cmp -s "$here/draw1.json" "$here/draw2.json"; then echo "the same answer with another seed"; exit 1; fi
if cmp -s "$here/draw2.json" "$here/draw3.json"; then echo "the same answer with a third seed"; exit 1; fi
line "/reset"
line "surprise me"
line "/save $here/draw4.json"
expect "saved 2 messages" 4
for i in 1 2 3; do
    if cmp -s "$here/draw$i.json" "$here/draw4.json"; then echo "the same prompt has the same answer as before"; exit 1; fi
done
prompt
keys C-d
expect "status 0"
pass "/regen and repeated messages"

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

# ---- pasted lines are one message ----
paste() { t set-buffer -- "$1"; t paste-buffer -p; }
start -n 4 -c 8000
expect "/help lists commands"
prompt
paste "$(printf 'int f(void)\n{\n\treturn 1;\n\n/* end */\n}')
"
expect "/* end */"
sleep 1
if screen | grep -F -q "there is no command"; then echo "a line that was pasted became a command"; screen; exit 1; fi
keys -l " // typed"
keys Enter
prompt
paste "$(printf '/etc\n""" of """\nlast \303\244 \\')"
expect "last"
keys Enter
prompt
paste "/stats"
keys Enter
expect "generated 8 tokens"
line "/save $here/pasted.json"
expect "saved 4 messages"
grep -F -q '"content": "int f(void)\n{\n\treturn 1;\n\n/* end */\n} // typed"' "$here/pasted.json" ||
    { echo "the pasted block is not one message"; cat "$here/pasted.json"; exit 1; }
grep -F -q '"content": "/etc\n\"\"\" of \"\"\"\nlast ä \\"' "$here/pasted.json" ||
    { echo "the second block is not one message"; cat "$here/pasted.json"; exit 1; }
prompt
paste "$(seq 300 | sed 's/^/line /')" # more than the window
expect "line 300"
keys Enter
prompt
keys Up
expect "line 300" 2
keys Enter
line "/save $here/long.json"
expect "saved 8 messages"
grep -F -q '"content": "line 1\nline 2\n' "$here/long.json" && grep -F -q '\nline 300"' "$here/long.json" ||
    { echo "the long block is not one message"; exit 1; }
prompt
kill -TERM "$(t list-panes -F '#{pane_pid}' | xargs -I{} pgrep -P {} -x aerie)"
expect "status 143"
if screen | grep -F -q "Ctrl-C again"; then echo "SIGTERM is answered with a question"; screen; exit 1; fi
paste "after the end"
expect "after the end"
if screen | grep -F -q "200~"; then echo "pastes are marked after the end"; screen; exit 1; fi
pass "pasted lines are one message; SIGTERM leaves the terminal as it was"

# ---- what is typed while an answer is printed waits, also for the end by Ctrl-C ----
start -c 100000
expect "/help lists commands"
line "go on for ever"
sleep 2
keys -l "kept-for-later"
sleep 1
if screen | grep -F -q "kept-for-later"; then echo "keys are shown in the answer"; screen; exit 1; fi
keys C-c
expect "> kept-for-later"
keys C-u
keys C-d
expect "status 0"
pass "keys wait while an answer is printed"

# ---- Tab ----
start -n 4
expect "/help lists commands"
prompt
keys -l "/rea"
keys Tab
keys -l "$here/some t"
keys Tab
expect "> /read $here/some text.txt"
keys Enter
expect "read 11 bytes from '$here/some text.txt'"
prompt
keys -l "/s"
keys Tab
expect "/save!"
screen | grep -q "/stats" && screen | grep -q "/system" || { echo "Tab shows no commands"; screen; exit 1; }
keys C-u
mkdir "$here/folder"
touch "$here/folder/one.txt"
keys -l "/load ~/fold"
keys Tab
keys -l "o"
keys Tab
expect "> /load ~/folder/one.txt"
keys C-u
keys -l "/load '~/fold"
keys Tab
expect "> /load '~/folder/"
keys C-u
keys C-d
expect "status 0"
pass "Tab completes commands and files"

# ---- lines end between words; code is left alone; a window may change ----
sentence="The quick brown fox jumps over the lazy dog while five boxing wizards wait beside the quiet river."
other="After a fence that the prompt began, lines of the answer still end between words, as they did before."
code="a_line_of_code( that , is = longer ) than [ the ] window ; and + stays - as * it / is"
printf 'root ::= "%s\\n\\n```c\\n%s\\n```\\n  - %s\\n%s end\\n}\\n```\\n%s"\n' \
    "$sentence" "$code" "$sentence" "$(printf '漢字%.0s' $(seq 15))" "$other" >"$here/words.gbnf"
plain=$(env -i HOME="$here" "$program" run -m "$here/m.gguf" --temp 0 -n 2000 --grammar-file "$here/words.gbnf" -p x -q)
printf '%s\n' "$plain" | grep -F -x -q -e "$sentence" || { echo "a pipe gets wrapped lines: $plain"; exit 1; }
real_lines() { t capture-pane -p -S -2000; } # as they stand, not joined
wrapped() { # columns, file: every line of the answers fits and holds whole words
    real_lines >"$2"
    printf '%s\n' "$sentence" "$other" | fold -s -w "$1" | sed 's/ *$//' >"$2.words"
    while read -r words; do
        grep -F -x -q -e "$words" "$2" || { echo "no line '$words' at $1 columns:"; cat "$2"; exit 1; }
    done <"$2.words"
    code_line=$(printf '%s' "$code" | cut -c 1-"$1" | sed 's/ *$//')
    grep -F -x -q -e "$code_line" "$2" || { echo "the line of code was changed:"; cat "$2"; exit 1; }
    half=$(printf '漢字%.0s' $(seq $(($1 / 4))))
    grep -q "^$half" "$2" || { echo "wide characters do not fill a line:"; cat "$2"; exit 1; }
}
columns=40 start --ignore-eos -n 2000 --grammar-file "$here/words.gbnf"
expect "/help lists commands"
line "say it"
expect "字 end"
prompt
wrapped 40 "$here/screen40"
t resize-window -x 52 -y 50
line "/reset"
line "again"
expect "字 end" 2
prompt
wrapped 52 "$here/screen52"
note="aerie: there is no command '/nonsense'; /help lists them. To send it as a message, put a space before it"
line "/nonsense"
expect "them. To send it"
prompt
real_lines >"$here/screen52"
printf '%s\n' "$note" | fold -s -w 52 | sed 's/ *$//' >"$here/note"
while read -r words; do
    grep -F -x -q -e "$words" "$here/screen52" || { echo "no line '$words' of a message:"; cat "$here/screen52"; exit 1; }
done <"$here/note"
keys C-d
expect "status 0"
columns=40 start --no-wrap -n 2000 --grammar-file "$here/words.gbnf"
expect "/help lists commands"
line "say it"
expect "字 end"
real_lines | grep -F -x -q "$(printf '%s' "$sentence" | cut -c 41-80)" || { echo "--no-wrap wraps"; real_lines; exit 1; }
pass "lines end between words"

# ---- a chat that begins with a message ----
start -n 12 -cnv -p "'begin with this'"
expect "> begin with this"
line "/save $here/begun.json"
expect "saved 2 messages"
grep -F -q '"content": "begin with this"' "$here/begun.json"
prompt
keys C-d
expect "status 0"
start -n 4 -p one
expect "status 0"
screen | grep -q "/help lists" && { echo "-p alone is not a chat"; exit 1; }
pass "-cnv -p begins a chat"

# ---- a long prompt shows its progress, and takes it back ----
yes 'some words ' | head -c 60000 >"$here/long.txt"
start -n 4 -c 70000 --cpu ref -t 1 -f "$here/long.txt"
expect "reading the prompt ["
keys C-c
expect "status 130"
screen | grep -q "reading the prompt" && { echo "the bar is still there"; screen; exit 1; }
pass "a long prompt shows its progress"
columns=30 # the bar would wrap, and each state of it would stay
start -n 4 -c 70000 --cpu ref -t 1 -f "$here/long.txt"
expect "reading the prompt "
keys C-c
expect "status 130"
screen | grep -q "reading the prompt" && { echo "the bar is still there"; screen; exit 1; }
columns=200
pass "a narrow terminal has a short one"

# ---- a terminal that obeys no escape sequences gets none ----
environment=TERM=dumb
start -n 4
t pipe-pane "cat > $here/dumb"
line "hi"
line "/quit"
expect "status 0"
environment=
grep -q "$(printf '\033')" "$here/dumb" && { echo "escape sequences:"; cat -v "$here/dumb"; exit 1; }
pass "a dumb terminal gets no escape sequences"

# ---- a model without a template ----
LC_ALL=C sed 's/tokenizer.chat_template/tokenizer.chat_templatX/' "$here/m.gguf" >"$here/bare.gguf"
start -m "$here/bare.gguf" -n 4
expect "so messages use the built-in template"
prompt
keys C-d
expect "status 0"
pass "a chat without a template takes the plain layout"

# ---- files written at the end: one that cannot be written does not keep the other from being written ----
mkdir "$here/gone"
start -n 4 --prompt-cache "$here/gone/cache" --lookup-cache-dynamic "$here/lookup"
line "hello"
prompt
rmdir "$here/gone"
line "/quit"
expect "gone/cache"
expect "status 1"
[ -s "$here/lookup" ]
pass "what n-grams remember is saved although the prompt cache is not"

# ---- pictures: a text model, /image, a pasted path, saved and loaded, a file that changed ----
mkarch="$(dirname "$mkmodel")/mkarch"
if command -v python3 >/dev/null; then
    picture() { # FILE BYTE: 40 x 30 pixels of one grey
        python3 -c 'import struct, sys, zlib
rows = (b"\0" + bytes([int(sys.argv[2])]) * 120) * 30
chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
open(sys.argv[1], "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)) +
                              chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))' "$1" "$2"
    }
    picture "$here/grey one.png" 90
    picture "$here/dark.png" 9
    head -c 60 "$here/dark.png" >"$here/cut.png"
    start -n 4
    line "/image $here/dark.png"
    expect "this model reads text only; --mmproj FILE names the part that reads images"
    line "/quit"
    expect "status 0"
    "$mkarch" mmproj-gemma3:64 "$here/eye.gguf"
    start -n 4 --mmproj "$here/eye.gguf"
    line "/image"
    expect "/image needs the name of a file"
    line "/image $here/missing.png"
    expect "cannot read '$here/missing.png'"
    line "/image $here"
    expect "it is a folder, not a picture's file"
    line "/image $here/cut.png"
    expect "cut.png': "
    line "/image $here/dark.png"
    expect "40 x 30 pixels, 16 tokens: it comes before your next message"
    line "'$here/grey one.png' what are these?"
    expect "tokens: it comes before your next message" 2
    line "and now?"
    line "/save $here/seen.json"
    expect "saved 4 messages"
    [ "$(grep -c '"type": "image"' "$here/seen.json")" = 2 ]
    grep -F -q '"text": "what are these?"' "$here/seen.json"
    line "/load $here/seen.json"
    expect "loaded 4 messages (2 turns)"
    line "/regen"
    line "/save! $here/seen.json"
    expect "saved 4 messages" 2
    picture "$here/dark.png" 10
    line "/load $here/seen.json"
    expect "the file of its picture has changed"
    line "/quit"
    expect "status 0"
    pass "pictures are shown, saved and loaded"
fi
