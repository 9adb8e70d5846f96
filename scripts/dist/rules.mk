# The library of `make dist` and `make wheel`: libbpf, libelf and zlib inside, for each machine of
# DIST_ARCHES. Included by the Makefile.

DIST := build/dist
DIST_ARCHES := x86_64 aarch64
DIST_SRC := $(DIST)/src
# Small: all of it is in a file of less than a megabyte, beside byte code that makes commands start
# faster. Nothing unwinds these stacks.
DIST_CFLAGS := -Os -g0 -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -DNDEBUG \
	-fno-asynchronous-unwind-tables -fno-unwind-tables
# Only linkers of BPF programs read these.
DIST_STRIP := -g --remove-section=.rel.BTF --remove-section=.rel.BTF.ext
THIRD_PARTY := $(DIST_SRC)/.unpacked
# Whatever is compiled by these rules is made again after a change of them.
DIST_RULES := scripts/dist/rules.mk

# Debian names its compilers so, the native one too.
$(DIST)/x86_64/%: override CC = x86_64-linux-gnu-gcc
$(DIST)/aarch64/%: override CC = aarch64-linux-gnu-gcc

$(THIRD_PARTY): scripts/dist/fetch scripts/dist/sources.txt
	scripts/dist/fetch $(DIST_SRC)
	mkdir -p $(DIST_SRC)/include
	ln -sfn ../libbpf/src $(DIST_SRC)/include/bpf
	touch $@

# An archive of $(1), C files below DIST_SRC, compiled with $(2). Warnings about them are not ours, and
# no object of an older release goes into it.
define archive
	rm -rf $(@:.a=)
	mkdir -p $(@:.a=)
	cd $(DIST_SRC) && ls $(1) >'$(CURDIR)/$(@:.a=)/files'
	xargs -P 2 -I {} sh -c '$(CC) -w $(DIST_CFLAGS) $(2) -c $(DIST_SRC)/{} -o $(@:.a=)/$$(basename {} .c).o' \
		<$(@:.a=)/files
	rm -f $@
	LC_ALL=C $(CC:gcc=ar) rcD $@ $(@:.a=)/*.o
endef

$(DIST)/%/libbpf.a: $(THIRD_PARTY) $(DIST_RULES)
	$(call archive,libbpf/src/*.c,-std=gnu89 -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64 \
		-I$(DIST_SRC)/libbpf/include -I$(DIST_SRC)/libbpf/include/uapi -I$(DIST_SRC)/elfutils/libelf -I$(DIST_SRC)/zlib)

$(DIST)/%/libelf.a: $(THIRD_PARTY) scripts/dist/config.h $(DIST_RULES)
	$(call archive,elfutils/libelf/*.c elfutils/lib/eu-search.c,-std=gnu11 -DHAVE_CONFIG_H -Iscripts/dist \
		-I$(DIST_SRC)/elfutils/libelf -I$(DIST_SRC)/elfutils/lib -I$(DIST_SRC)/zlib)

$(DIST)/%/libz.a: $(THIRD_PARTY) $(DIST_RULES)
	$(call archive,zlib/*.c,-std=gnu11 -DHAVE_UNISTD_H -DHAVE_STDARG_H -DHAVE_HIDDEN -D_LARGEFILE64_SOURCE=1)

DIST_LIBS := libbpf.a libelf.a libz.a
DIST_LIB_SRC := $(LIB_SRC) scripts/dist/old_glibc.c

# The BPF programs and the library of machine $(1).
define dist_library
$(DIST)/$(1)/%.bpf.o: $(BPF_DIR)/%.bpf.c $(wildcard $(BPF_DIR)/*.h) $(LIB_DIR)/zfstrace_tables.h $(THIRD_PARTY) $(DIST_RULES)
	mkdir -p $$(@D)
	$(CLANG) -I$(DIST_SRC)/include $$(BPF_CFLAGS) -I/usr/$$(MACHINE)/include -c $$< -o $$@.tmp
	$(LLVM_STRIP) $(DIST_STRIP) $$@.tmp
	mv $$@.tmp $$@

$(DIST)/$(1)/libzfstrace.so: $(DIST_LIB_SRC) $(LIB_HDR) $(DIST_RULES) $(addprefix $(DIST)/$(1)/,$(notdir $(BPF_OBJ)) $(DIST_LIBS))
	$$(CC) $(filter-out -DBPF_DIR=% -g,$(ALL_CFLAGS)) $(DIST_CFLAGS) -DBPF_DIR='"$(DIST)/$(1)"' \
		-I$(DIST_SRC)/include -shared -s -Wl,-soname,libzfstrace.so.$(LIB_ABI) -Wl,--gc-sections \
		-Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,-z,relro -Wl,-z,now \
		-o $$@.tmp $(DIST_LIB_SRC) $(addprefix $(DIST)/$(1)/,$(DIST_LIBS))
	mv $$@.tmp $$@
endef
$(foreach arch,$(DIST_ARCHES),$(eval $(call dist_library,$(arch))))

# Byte code without columns is smaller by a fourth (-X).
## dist: build the one file for each machine, with its checksum, in dist/
.PHONY: dist
dist: $(DIST_ARCHES:%=$(DIST)/%/libzfstrace.so)
	PYTHONHASHSEED=0 $(PYTHON) -X no_debug_ranges scripts/dist/pack.py --output dist $^

## wheel: build the wheel for each machine, with its checksum, in dist/
.PHONY: wheel
wheel: $(DIST_ARCHES:%=$(DIST)/%/libzfstrace.so)
	$(PYTHON) scripts/dist/wheel.py --output dist $^
