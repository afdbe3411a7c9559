# The front door. Everything is built by CMake into build/; this file only knows the common ways in.

BUILD ?= build
JOBS  ?= $(or $(patsubst -j%,%,$(filter -j%,$(MAKEFLAGS))),$(shell nproc))
CMAKE_FLAGS ?=
# CMake's own make begins anew: -j N is told by JOBS, and it need not say which folders it enters.
unexport MAKEFLAGS MFLAGS
COMPILE = env -u MAKELEVEL cmake --build

.PHONY: all deps model gemma demo quick test test-changed check check-all
.PHONY: check-san check-arm64 check-tsan fuzz bench bench-verify bench-spec install uninstall deb tar wheel
.PHONY: clean help

all: ## build the program and the libraries
	cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS) >/dev/null
	$(COMPILE) $(BUILD) -j $(JOBS) --target aerie aerie_static aerie_shared

deps: ## install the packages for building, testing and the demo (Debian, as root)
	@sh scripts/install-deps.sh

model: deps ## download SmolLM2-135M-Instruct (Q4_1, 94 MiB) to models/, hash checked
	@sh scripts/fetch-model.sh

gemma: deps ## download Gemma 3 270M (Q4_K_M, 241 MiB, under Gemma's terms of use) to models/, hash checked
	@sh scripts/fetch-model.sh gemma

demo: deps model all ## answer prompts plain and with speculation, and compare the bytes
	@python3 scripts/demo.py

quick: ## source-tree rules, unit tests, some cases of each law: about a minute once built
	cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS) >/dev/null
	$(COMPILE) $(BUILD) -j $(JOBS)
	AERIE_TEST_EVERY=96 ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure -L '^quick$$'

test: ## one test or several: make test T=laws/engine_laws
	cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS) >/dev/null
	$(COMPILE) $(BUILD) -j $(JOBS)
	ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure -R '$(T)'

test-changed: ## the tests that the changes since main can break (tests/labels.txt)
	cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS) >/dev/null
	$(COMPILE) $(BUILD) -j $(JOBS)
	@scripts/test-changed.py $(BUILD)

check: ## build with warnings as errors, run all tests, then again under sanitizers
	@bash scripts/check.sh

check-all: ## make check with every test case, none sampled: hours
	@AERIE_TEST_EVERY=1 bash scripts/check.sh

check-san: deps ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	cmake -S . -B $(BUILD)-san -DCMAKE_BUILD_TYPE=RelWithDebInfo -DAERIE_SANITIZE=address,undefined >/dev/null
	$(COMPILE) $(BUILD)-san -j $(JOBS)
	ctest --test-dir $(BUILD)-san --output-on-failure -j $(JOBS)

check-arm64: ## the kernel checker cross-built for arm64, under qemu-user; the reference's bits compared with this machine's
	@sh scripts/check-arm64.sh

check-tsan: deps ## pool, groups of ranks, generation and server under ThreadSanitizer
	cmake -S . -B $(BUILD)-tsan -DCMAKE_BUILD_TYPE=RelWithDebInfo -DAERIE_SANITIZE=thread >/dev/null
	$(COMPILE) $(BUILD)-tsan -j $(JOBS) --target aerie mkmodel mkarch mklora unit_test_pool laws_test_task_laws \
	  laws_test_ranks_laws laws_test_follow_laws app_test_run
	ctest --test-dir $(BUILD)-tsan --output-on-failure \
	  -R '^(unit/pool|laws/(task|ranks|follow)_laws|app/run|serve/(basic|laws|limits|turns|conversations))$$'

fuzz: deps ## libFuzzer programs (clang) in build-fuzz/tests/fuzz_*
	cmake -S . -B $(BUILD)-fuzz -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo -DAERIE_TESTS=OFF \
	  -DAERIE_FUZZ=ON -DAERIE_SANITIZE=address,undefined >/dev/null
	$(COMPILE) $(BUILD)-fuzz -j $(JOBS)

bench: all model ## speed on the real model
	$(BUILD)/aerie bench speed -m models/smollm2-135m-instruct-q4_1.gguf
	$(BUILD)/aerie bench verify -m models/smollm2-135m-instruct-q4_1.gguf

bench-verify: all model ## T(n) of the real model as table and plots in build/verify (plots need gnuplot-nox)
	mkdir -p $(BUILD)/verify
	$(BUILD)/aerie bench verify -m models/smollm2-135m-instruct-q4_1.gguf --contexts 0,4096 --csv > $(BUILD)/verify/verify.csv
	bench/plot.py -o $(BUILD)/verify $(BUILD)/verify/verify.csv

bench-spec: all model ## speculation on the held-out prompts as table and plots in build/spec (plots need gnuplot-nox)
	mkdir -p $(BUILD)/spec
	$(BUILD)/aerie bench spec -m models/smollm2-135m-instruct-q4_1.gguf --prompts bench/prompts --held-out only --temps 0,1 -s 1 \
	  -v --csv \
	  > $(BUILD)/spec/spec.csv
	bench/plot.py -o $(BUILD)/spec $(BUILD)/spec/spec.csv

install: all ## into /usr/local, or DESTDIR and CMAKE_INSTALL_PREFIX
	cmake --install $(BUILD)

uninstall: ## remove what `make install` wrote
	@cmake -DBUILD=$(BUILD) -P cmake/uninstall.cmake

deb: deps ## Debian packages (program, library, development files) in build-deb
	@BUILD=$(BUILD) JOBS=$(JOBS) sh scripts/make-deb.sh $(CMAKE_FLAGS)

tar: deps ## a relocatable archive with program and libraries, build-tar/aerie-*.tar.xz
	@BUILD=$(BUILD) JOBS=$(JOBS) sh scripts/make-deb.sh --tar $(CMAKE_FLAGS)

wheel: deps ## the Python package as a wheel in build-wheel, which needs no compiler to install
	@BUILD=$(BUILD) JOBS=$(JOBS) sh scripts/make-wheel.sh

clean:
	rm -rf $(BUILD) $(BUILD)-san $(BUILD)-tsan $(BUILD)-fuzz $(BUILD)-package $(BUILD)-deb $(BUILD)-tar \
	  $(BUILD)-wheel

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' Makefile
