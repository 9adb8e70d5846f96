# Build, test and run zfstune. `make help` lists the targets; how long they take is an estimate for
# two cores without KVM.

CC ?= gcc
CLANG ?= clang
LLVM_STRIP ?= llvm-strip
PYTHON ?= .venv/bin/python
PREFIX ?= /usr/local
DESTDIR ?=

BPF_DIR := tracers/bpf
LIB_DIR := tracers/libzfstrace
BPF_OBJ := $(patsubst %.c,%.o,$(wildcard $(BPF_DIR)/*.bpf.c))
LIB := $(LIB_DIR)/libzfstrace.so
LIB_ABI := $(shell sed -n 's/^.define ZFSTRACE_ABI //p' $(LIB_DIR)/zfstrace.h)
LIB_SRC := $(wildcard $(LIB_DIR)/*.c)
LIB_HDR := $(wildcard $(LIB_DIR)/*.h) $(wildcard $(BPF_DIR)/*.h)
C_FILES := scripts/zfslab/instructions.c $(wildcard $(BPF_DIR)/*.[ch] $(LIB_DIR)/*.[ch] $(LIB_DIR)/examples/*.c tests/unit/libzfstrace/*.[ch] tests/unit/libzfstrace/bpf_shim/*.[ch] \
	tests/unit/libzfstrace/bpf_shim/bpf/*.h tests/support/freebsd/*.c scripts/dist/*.[ch])
PY_DIRS := tracers tuner platform scripts tests
# What runs on users' hosts, with the Python they have
ON_HOSTS := bin/zfstune platform scripts/dist/main.py scripts/dist/importer.py scripts/freebsd scripts/install.py tracers/bcc tracers/zfstrace tuner
# Python without .py in the name, so mypy takes each for a program of its own
PY_PROGRAMS := bin/zfstune scripts/lab scripts/demo
SH_FILES := scripts/bootstrap scripts/dist/fetch scripts/freebsd-check scripts/python39 .ci/run $(wildcard tests/support/*.sh) $(wildcard scripts/*.sh scripts/zfslab/guest/*.sh tests/data/*.sh platform/linux/packages/*.sh) \
	$(wildcard scripts/completion/*.bash platform/freebsd/rc.d/*)

# _GNU_SOURCE stays unset on purpose: with it glibc 2.38 and later renames
# strtol and friends, and a library built there would not load on Debian 12.
CFLAGS ?= -O2 -g
ALL_CFLAGS := -std=gnu11 -D_DEFAULT_SOURCE -Wall -Wextra -Werror -fPIC -fvisibility=hidden \
	-DBPF_DIR='"$(BPF_DIR)"' $(CFLAGS)

# The machine's name in the compiler, and in libbpf's headers.
MACHINE = $(shell $(CC) -dumpmachine)
BPF_ARCH_x86_64 := x86
BPF_ARCH_aarch64 := arm64
BPF_ARCH = $(BPF_ARCH_$(firstword $(subst -, ,$(MACHINE))))
BPF_CFLAGS = -O2 -g -mcpu=v3 -target bpf -D__TARGET_ARCH_$(BPF_ARCH) \
	-I/usr/include/$(shell $(CC) -print-multiarch) '-fdebug-prefix-map=$(CURDIR)=.' -Wall -Wextra -Wno-unused-parameter -Werror

# Of these three, OpenZFS 2.2 from the source that is named (docs/lab.md)
FLAVOURS ?= trixie bookworm $(if $(ZFSTUNE_ZFS_SOURCE),bookworm-2.2)
# Tested as well where there is an image, given or built (docs/lab.md)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/zfstune/lab
FREEBSD ?= $(if $(ZFSTUNE_FREEBSD_IMAGE)$(wildcard $(CACHE)/freebsd-15-*/disk.qcow2),freebsd-15)

.PHONY: all rules completion dashboard help bootstrap demo test test-unit test-unit-half test-unit-rest test-c test-python39 test-flame test-monitoring test-lab test-btf test-databases test-dtrace test-endurance test-diagnose test-matrix test-weeks bench \
	bench-demo bench-flame bench-freebsd bench-instructions bench-reads bench-reports bench-search bench-search-lab bench-start bench-tools bench-tracing freebsd-page statistics lint format install install-tools deb rpm clean
.DEFAULT_GOAL := all

## all: build the BPF programs and libzfstrace.so
all: $(LIB)

## rules: write the rule files as JSON, after a change of their TOML
rules:
	$(PYTHON) scripts/compile_rules.py

## completion: write the completion for shells, after a change of options
completion:
	$(PYTHON) scripts/compile_completion.py

## dashboard: write platform/monitoring/dashboard.json and the table of metrics in docs/operations.md
dashboard:
	PYTHONPATH=scripts:tracers:tuner $(PYTHON) scripts/pages/dashboard.py
	PYTHONPATH=tracers:tuner $(PYTHON) scripts/pages/metrics.py

$(BPF_DIR)/%.bpf.o: $(BPF_DIR)/%.bpf.c $(wildcard $(BPF_DIR)/*.h) $(LIB_DIR)/zfstrace_tables.h
	$(CLANG) $(BPF_CFLAGS) -c $< -o $@.tmp
	$(LLVM_STRIP) -g $@.tmp
	mv $@.tmp $@

$(LIB): $(LIB_SRC) $(LIB_HDR) $(BPF_OBJ)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libzfstrace.so.$(LIB_ABI) \
		-o $@.tmp $(LIB_SRC) -lbpf
	mv $@.tmp $@

## demo: trace and tune a real pool in a virtual machine; writes demo/report.html
demo:
	scripts/bootstrap
	$(MAKE) --no-print-directory all
	scripts/lab build trixie
	scripts/demo

## bench-demo: runs the demo ten times; writes docs/measurements/demo.md (about 75 min)
bench-demo:
	scripts/bootstrap
	$(MAKE) --no-print-directory all
	scripts/lab build trixie
	$(PYTHON) scripts/benchmarks/demo.py $(DEMO)

## test: build, lint, unit tests, pages, rules, lab tests on Debian 13 and 12, and on FreeBSD 15 (about 35 min with the images there)
test:
	scripts/bootstrap
	$(MAKE) --no-print-directory all
	$(MAKE) --no-print-directory -j2 test-unit lint test-flame test-monitoring
	@$(if $(FREEBSD),,echo "Not tested on FreeBSD: there is no image of it, see docs/lab.md")
	$(MAKE) --no-print-directory test-lab SAMPLE=--sample FLAVOURS="$(FLAVOURS) $(FREEBSD)"

## test-unit: tests that need no kernel; C runs under ASan and UBSan
test-unit: test-c test-unit-half test-unit-rest

# About half of the time, so that `make -j2` uses two cores
HALF = tests/unit/scripts tests/unit/changes tests/unit/incident
test-unit-half: all
	$(PYTHON) -m pytest $(HALF)
test-unit-rest: all
	$(PYTHON) -m pytest tests/unit $(addprefix --ignore=,$(HALF))

TEST_C := build/test_attach build/test_c build/test_others
TEST_BPF := build/test_bpf build/test_bpf_commit build/test_bpf_device build/test_bpf_read build/test_bpf_stacks build/test_bpf_throttle build/test_bpf_txg build/test_bpf_waits
test-c: $(TEST_C) $(TEST_BPF)
	for test in $^; do $$test || exit 1; done

SANITIZE := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -Itracers/libzfstrace

$(TEST_C): build/%: tests/unit/libzfstrace/%.c tests/unit/libzfstrace/check.h $(LIB_SRC) $(LIB_HDR) $(BPF_OBJ)
	@mkdir -p build
	$(CC) $(ALL_CFLAGS) $(SANITIZE) -o $@ $< $(LIB_SRC) -lbpf

# BPF programs as functions; tests/unit/libzfstrace/bpf_shim stands in for the kernel.
BPF_SHIM := tests/unit/libzfstrace/check.h $(wildcard tests/unit/libzfstrace/bpf_shim/*.[ch] tests/unit/libzfstrace/bpf_shim/bpf/*.h)
$(TEST_BPF): build/%: tests/unit/libzfstrace/%.c $(BPF_SHIM) $(LIB_SRC) $(LIB_HDR) $(BPF_OBJ)
	@mkdir -p build
	$(CC) $(ALL_CFLAGS) $(SANITIZE) -Itests/unit/libzfstrace/bpf_shim -Wno-attributes -Wno-unused \
		-Wno-unused-parameter -o $@ $< tests/unit/libzfstrace/bpf_shim/shim.c \
		$(LIB_SRC) -lbpf

## test-python39: the one file, the wheel and unit tests under Debian 11's Python 3.9, and a trace in a VM (about 15 min)
test-python39: all dist wheel
	scripts/python39
	scripts/lab build bookworm
	$(PYTHON) -m pytest -s tests/lab/test_python39.py --flavour bookworm

## test-flame: flame graphs in Chromium, speedscope and pprof
test-flame:
	$(PYTHON) -m pytest tests/flame

## test-monitoring: the dashboard and the rules in a real Prometheus, and against Grafana's types
test-monitoring:
	$(PYTHON) -m pytest tests/monitoring

## test-lab: tests on real OpenZFS in virtual machines (FLAVOURS="trixie bookworm"; about 2 h each)
test-lab: all
	scripts/lab build $(FLAVOURS)
	$(PYTHON) -m pytest -s tests/lab $(SAMPLE) $(addprefix --flavour ,$(FLAVOURS))

## test-dtrace: the D scripts on Linux, against the same pool (about 20 min)
test-dtrace: all
	scripts/lab build trixie-dtrace
	$(PYTHON) -m pytest -s tests/lab/test_dtrace.py tests/lab/test_dtrace_traces.py --flavour trixie-dtrace

## test-btf: all views where ZFS was given BTF on Linux 6.1 (about 25 min)
test-btf: all
	scripts/lab build bookworm-btf
	$(PYTHON) -m pytest -s $(addprefix tests/lab/test_,$(addsuffix .py,counts flame light reads slots views)) \
		--flavour bookworm-btf

## test-endurance: all views at once for ten minutes, on each flavour (about 15 min each)
test-endurance: all
	scripts/lab build $(FLAVOURS)
	$(PYTHON) -m pytest -s tests/lab/test_endurance.py --endurance 600 \
		$(addprefix --flavour ,$(FLAVOURS))

## test-weeks: a light trace, and the exporter, for two hours, whatever happens meanwhile (about 2.5 h)
test-weeks: all
	scripts/lab build trixie
	$(PYTHON) -m pytest -s tests/lab/test_weeks.py tests/lab/test_lasting.py --weeks 7200 \
		--lasting 7200 --page docs/measurements/weeks.md --flavour trixie

# What `make test` does not run on each flavour, or less of (tests/lab/conftest.py), except what has
# a target or a line of its own, and arc, which is in test-lab on trixie-backports.
SAMPLED = advise beside bench bench_matrix causes cost counts dist endurance exporter faults flame lasting light monitored packages reads recorder robust role service slots tools views weeks
SAMPLED_FREEBSD = $(addprefix freebsd_,bench changes check exporter faults reads robust views)

## test-matrix: test, also by Python 3.9 and on trixie-backports, more faults, whole tuning sessions, all causes (about 14 h)
test-matrix: test test-python39
	$(MAKE) --no-print-directory test-lab FLAVOURS=trixie-backports
	$(MAKE) --no-print-directory test-dtrace
	$(MAKE) --no-print-directory test-btf
	$(PYTHON) -m pytest -s $(addprefix tests/lab/test_,$(addsuffix .py,$(SAMPLED))) --signals 8 \
		--rounds 200 $(addprefix --flavour ,$(FLAVOURS))
	$(if $(FREEBSD),$(PYTHON) -m pytest -s $(addprefix tests/lab/test_,$(addsuffix .py,$(SAMPLED_FREEBSD))) \
		--rounds 200 --flavour $(FREEBSD))
	$(PYTHON) -m pytest -s tests/lab/test_tune.py --tune full $(addprefix --flavour ,$(FLAVOURS))
	$(if $(FREEBSD),$(PYTHON) -m pytest -s tests/lab/test_freebsd_tune.py --tune full --flavour $(FREEBSD))
	$(MAKE) --no-print-directory test-diagnose
	$(MAKE) --no-print-directory test-databases

## test-diagnose: diagnose injected causes, five times each; writes docs/measurements/diagnosis.md (about 2 h a flavour; FLAVOURS may come one by one)
test-diagnose: all
	scripts/lab build $(FLAVOURS)
	$(PYTHON) -m pytest -s tests/lab/test_diagnose.py --runs 5 --page docs/measurements/diagnosis.md \
		$(addprefix --flavour ,$(FLAVOURS))
	$(if $(FREEBSD),$(PYTHON) -m pytest -s tests/lab/test_freebsd_diagnose.py --runs 5 \
		--page docs/measurements/diagnosis-freebsd.md --flavour $(FREEBSD))

## test-databases: PostgreSQL and MariaDB on ZFS, an hour; writes docs/measurements/databases.md
test-databases: all
	scripts/lab build trixie
	$(PYTHON) -m pytest -s tests/lab/test_databases.py --page docs/measurements/databases.md --flavour trixie

## freebsd-page: what was seen to work on FreeBSD; writes the table of docs/freebsd.md
freebsd-page:
	$(PYTHON) -m pytest -s $(wildcard tests/lab/test_freebsd_*.py) --tune full --flavour $(FREEBSD) \
		--freebsd-page docs/freebsd.md

## bench: measure what tracing costs, drawing and searches; writes docs/measurements (about 18 h)
bench: bench-tracing bench-flame bench-search bench-search-lab

## bench-tracing: what tracing costs, against peers; writes docs/measurements/tracing.md (about 5 h a flavour; in parts: docs/performance.md)
bench-tracing: all
	scripts/lab build $(FLAVOURS)
	$(PYTHON) scripts/benchmarks/tracing.py $(BENCH) $(FLAVOURS)

## bench-freebsd: measure what D scripts cost on FreeBSD; writes docs/measurements/freebsd.md (about 1 h)
bench-freebsd:
	$(PYTHON) scripts/benchmarks/freebsd.py $(FREEBSD)

## bench-tools: measure what the one-file tools cost; prints a table (about 20 min)
bench-tools:
	scripts/lab build bookworm
	scripts/lab run --flavour bookworm --disk size=4G -- python3 /zfstune/scripts/benchmarks/tools.py

## bench-instructions: count what a trace adds to an fsync; prints a table (about 10 min; with COST=--peers 30 min)
bench-instructions: all
	@$(PYTHON) scripts/benchmarks/instructions.py $(COST)

## bench-reads: measure what tracing reads costs; prints a table (about 10 min a flavour)
bench-reads: all
	scripts/lab build $(FLAVOURS)
	for flavour in $(FLAVOURS); do scripts/lab run --flavour $$flavour --disk size=4G -- \
		python3 /zfstune/scripts/benchmarks/reads.py || exit 1; done

## bench-reports: measure a report of 2014; writes docs/measurements/reports-2014.md (about 1.5 h)
bench-reports: all
	scripts/lab build bookworm trixie trixie-backports
	$(PYTHON) -m pytest -s tests/lab/test_reports.py --page docs/measurements/reports-2014.md \
		--flavour bookworm --flavour trixie --flavour trixie-backports

## bench-search: measure searches on the simulator (go on: SEARCH=--resume); writes docs/measurements/search.md (about 2 h)
bench-search:
	$(PYTHON) scripts/benchmarks/search.py $(SEARCH)

## bench-search-lab: the same on a real pool (go on: SEARCH=--resume; about 5 h)
bench-search-lab: all
	scripts/lab build trixie
	$(PYTHON) scripts/benchmarks/search_lab.py $(SEARCH)

## statistics: error rates of verdicts; writes docs/measurements/statistics.md, docs/pictures/statistics-*.svg (some minutes)
statistics:
	$(PYTHON) scripts/pages/noises.py
	$(PYTHON) scripts/pages/plot_statistics.py

## bench-flame: measure drawing flame graphs; writes docs/measurements/flame.md
bench-flame:
	$(PYTHON) scripts/benchmarks/flame.py

## bench-start: measure how long the one file takes to start; writes docs/measurements/start.md
bench-start: dist
	$(PYTHON) scripts/benchmarks/start.py

## lint: ruff, mypy, vermin, clang-format, shellcheck, mandoc; ansible-lint where it is installed
lint:
	.venv/bin/ruff check $(PY_DIRS) $(PY_PROGRAMS)
	.venv/bin/ruff format --check $(PY_DIRS) $(PY_PROGRAMS)
	.venv/bin/mypy
	.venv/bin/vermin -q --no-tips -t=3.9- $(ON_HOSTS)
	for program in $(PY_PROGRAMS) $(wildcard tracers/bcc/*.py tracers/dtrace/*.py); do .venv/bin/mypy $$program || exit 1; done
	.venv/bin/clang-format --dry-run -Werror $(C_FILES)
	shellcheck $(SH_FILES)
	mandoc -T lint -W warning docs/man/*.[138]
	$(PYTHON) scripts/check_subjects.py
	@if command -v ansible-lint >/dev/null; then \
		ansible-lint --offline --profile production platform/ansible/roles/zfstune; \
	else echo "Not linted: the role for Ansible, as there is no ansible-lint"; fi

## format: format Python and C as lint requires
format:
	.venv/bin/ruff check --fix-only $(PY_DIRS) $(PY_PROGRAMS)
	.venv/bin/ruff format $(PY_DIRS) $(PY_PROGRAMS)
	.venv/bin/clang-format -i $(C_FILES)

include scripts/dist/rules.mk

## install: install the command, the library and its headers, and manual pages below PREFIX
install: all
	python3 scripts/install.py --prefix '$(PREFIX)' --destdir '$(DESTDIR)'

## install-tools: install only the one-file tools for bpftrace, bcc and dtrace, in PREFIX/sbin
install-tools:
	python3 scripts/install.py --tools --prefix '$(PREFIX)' --destdir '$(DESTDIR)'

## deb: build dist/*.deb by Debian's tools (docs/packages.md)
deb:
	python3 scripts/package.py deb

## rpm: build dist/*.rpm by rpmbuild (docs/packages.md)
rpm:
	python3 scripts/package.py rpm

## clean: remove what was built (not .venv, not the lab's images)
clean:
	rm -rf build demo dist $(BPF_DIR)/*.o $(BPF_DIR)/*.tmp $(LIB_DIR)/*.so $(LIB_DIR)/*.tmp
	find . -name __pycache__ -prune -exec rm -rf {} +

## help: this list
help:
	@sed -n 's/^## \([a-z0-9-]*\): /\1\t/p' $(MAKEFILE_LIST) | sort | \
		awk -F'\t' '{ printf "  make %-16s %s\n", $$1, $$2 }'
