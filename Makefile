# SPDX-License-Identifier: MIT
#
# make          build build/release/gemmule, also linked as ./gemmule
# make run      install what is missing, build, answer PROMPT with the bundled model
# make quick    build, run the short tier: unit tests, command line, checks of the source
# make test     install what is missing, build, run the tests: the short tier and the sanitizers'
# make check    the long tier: all of test, -Werror builds, analyser, fuzzing, coverage, slow tests
#               (SKIP_TEST=1 leaves out what `make test` runs)
# make check-rdna3  compile every shader for a Radeon 780M, with RADV's null device, and judge it
# make install  put program, models, headers, libraries and gemmule.pc under PREFIX (/usr/local), with DESTDIR
#               before it where one is given; `make uninstall` takes them away again
# make help     print this
# make format   clang-format every source in place
# make clean    remove everything made; `make distclean` also what was fetched into build/deps
#
# VULKAN=0 builds without the Vulkan backend and its shaders.
# CONFIG=release|debug|asan|tsan|cov|fuzz|werror-gcc|werror-clang picks a build folder and its flags;
# everything lands in build/CONFIG. JOBS=N sets how much runs at once. EXTRA_CFLAGS and
# EXTRA_LDFLAGS are added to ours. V=1 shows the commands. docs/TESTING.md describes the tiers.

CONFIG ?= release
CONFIGS := release debug asan tsan cov fuzz werror-gcc werror-clang
$(if $(filter $(CONFIG),$(CONFIGS)),,$(error CONFIG is $(CONFIG), expected one of: $(CONFIGS)))
B := build/$(CONFIG)
VULKAN ?= 1
DEPS ?= build/deps

SILENT := $(findstring s,$(filter-out -%,$(firstword $(MAKEFLAGS))))
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(JOBS)
endif
MAKEFLAGS += --no-print-directory

GCC ?= gcc
CLANG ?= clang
AR := ar
CC := $(if $(filter cov fuzz werror-clang,$(CONFIG)),$(CLANG),$(GCC))

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wmissing-prototypes -Wstrict-prototypes \
        -Wvla -Wpointer-arith -Wundef -Wno-psabi
STD := -std=c11 -D_GNU_SOURCE
SANITIZE := -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS.release := -O3 -g -DNDEBUG
FLAGS.debug := -O1 -g
FLAGS.asan := -O1 -g -fsanitize=address,undefined $(SANITIZE)
FLAGS.tsan := -O1 -g -fsanitize=thread $(SANITIZE)
FLAGS.cov := -O1 -g -fprofile-instr-generate -fcoverage-mapping
FLAGS.fuzz := -O1 -g -fsanitize=fuzzer-no-link,address,undefined $(SANITIZE)
FLAGS.werror-gcc := $(FLAGS.release) -Werror
FLAGS.werror-clang := $(FLAGS.release) -Werror
# Numbers mean the same on every machine: no contraction, no fast-math.
CFLAGS := $(STD) $(FLAGS.$(CONFIG)) -ffp-contract=off $(WARN) $(EXTRA_CFLAGS)
INCLUDES := -Iinclude -Isrc $(if $(filter-out 0,$(VULKAN)),-isystem $(DEPS)/include)
CPPFLAGS := $(INCLUDES) -MMD -MP
LDFLAGS := $(filter -fsanitize=% -fprofile-% -fcoverage-%,$(CFLAGS)) $(EXTRA_LDFLAGS)
LIB_LDLIBS := -ljansson -lm -lpthread
LDLIBS := $(LIB_LDLIBS)

Q := $(if $(V),,@)
say = $(if $(V)$(SILENT),,@echo '  $(1)  $@')
link = $(Q)$(CC) $(LDFLAGS) -o $@ $^

# The tree decides what is built: a file in its place needs no line here.
sources = $(if $(wildcard $(1)),$(shell find $(wildcard $(1)) -name '$(2)' | sort))
# What needs Vulkan lies in folders vk/; VULKAN=0 takes novk/ in their place.
WITHOUT := $(if $(filter 0,$(VULKAN)),vk,novk)
chosen = $(foreach f,$(1),$(if $(findstring /$(WITHOUT)/,$(f)),,$(f)))
vulkan_only = $(foreach f,$(1),$(if $(findstring /vk/,$(f)),$(f)))
SERVER_SRC := $(call sources,src/server,*.c)
LIB_SRC := $(filter-out $(SERVER_SRC),$(call chosen,$(call sources,src,*.c)))
CLI_SRC := $(call sources,programs,*.c)
UNIT_SRC := $(call chosen,$(call sources,tests/unit tests/golden tests/ops,t_*.c))
OOM_SRC := $(wildcard tests/oom/o_*.c)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FIXTURE_SRC := $(call chosen,$(call sources,tests/fixtures,*.c))
VK_SRC := $(call chosen,$(wildcard tests/vk/*.c))
TEST_SRC := $(UNIT_SRC) $(FIXTURE_SRC) $(VK_SRC) $(wildcard tests/oom/*.c tests/fuzz/*.c)

ifneq ($(VULKAN),0)
LIB_SRC += build/spv/vk_table.c
endif

LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
SERVER_OBJ := $(SERVER_SRC:%.c=$(B)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o)
TEST_OBJ := $(TEST_SRC:%.c=$(B)/%.o)
FIXTURE_OBJ := $(FIXTURE_SRC:%.c=$(B)/%.o)
UNIT_BIN := $(UNIT_SRC:%.c=$(B)/%)
OOM_BIN := $(OOM_SRC:%.c=$(B)/%)
VK_BIN := $(VK_SRC:%.c=$(B)/%)
REPLAY_BIN := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=$(B)/tests/fuzz/replay_%)
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/%)
FUZZ_NAMES := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=%)

# ---- what is built -----------------------------------------------------------------------------

all: $(B)/gemmule lib
	@$(if $(filter release,$(CONFIG)),ln -sf $(B)/gemmule gemmule,:)

lib: $(B)/libgemmule.a $(B)/libgemmule.so
tests: $(UNIT_BIN) $(OOM_BIN) $(VK_BIN) $(REPLAY_BIN) $(if $(VK_SRC),$(DEPS)/mesa.done)
fuzzers: $(FUZZ_BIN)
objects: $(LIB_OBJ) $(SERVER_OBJ) $(CLI_OBJ) $(TEST_OBJ)
lib tests fuzzers objects:
	@:

$(B)/libgemmule.a: $(LIB_OBJ) $(B)/sources
	$(call say,AR  )
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $(LIB_OBJ)

# The server stands on the library's public face; the program and its tests link it beside.
$(B)/libserver.a: $(SERVER_OBJ) $(B)/sources
	$(call say,AR  )
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $(SERVER_OBJ)

# The same objects make both libraries: they run anywhere, and show what the public headers declare.
LIB_FLAGS := -fPIC -fvisibility=hidden
$(LIB_OBJ): private CFLAGS += $(LIB_FLAGS)

VERSION := $(shell sed -n 's/.*define GM_VERSION "\(.*\)"/\1/p' include/gemmule.h)
SONAME := libgemmule.so.$(firstword $(subst ., ,$(VERSION)))

$(B)/libgemmule.so: $(LIB_OBJ) $(B)/sources
	$(call say,LINK)
	$(Q)$(CC) -shared $(LDFLAGS) -Wl,-soname,$(SONAME) -o $@ $(LIB_OBJ) $(LIB_LDLIBS)

$(B)/gemmule: $(CLI_OBJ) $(B)/libserver.a $(B)/libgemmule.a
	$(call say,LINK)
	$(link) -ledit -lmicrohttpd $(LDLIBS)

define compile
$(call say,CC  )
$(Q)mkdir -p $(@D)
$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
endef

$(B)/%.o: %.c $(B)/flags
	$(compile)

# A file's last word names its instruction set. Kernels get -O3: their loops are made to be unrolled;
# under sanitizers, which check each of the unrolled loads, that would take a minute a file.
ISA_O := $(if $(filter asan tsan fuzz cov,$(CONFIG)),,-O3)
ISA_FLAGS.avx2 := $(ISA_O) -mavx2 -mf16c
ISA_FLAGS.avx512 := $(ISA_O) -mavx2 -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
$(filter %_avx2.o,$(LIB_OBJ)): private CFLAGS += $(ISA_FLAGS.avx2)
$(filter %_avx512.o,$(LIB_OBJ)): private CFLAGS += $(ISA_FLAGS.avx512)

$(TEST_OBJ): private CPPFLAGS += -Itests

# `gemmule --version` names the commit: programs/ sees it as GM_COMMIT, a string. git is told that
# the folder may be another user's, or `sudo make install` would build once more without a name.
COMMIT := $(or $(shell git -c safe.directory='*' describe --always --dirty --abbrev=12 2>/dev/null),unknown)
$(CLI_OBJ): private CPPFLAGS += -DGM_COMMIT='"$(COMMIT)"'
$(CLI_OBJ): $(B)/commit

# A file that holds what it was made with, and is only touched when that changes.
note = @mkdir -p $(@D); echo "$$NOTE" | cmp -s - $@ || echo "$$NOTE" >$@
$(B)/flags: export NOTE = $(CC) $(CFLAGS) $(LIB_FLAGS)
$(B)/commit: export NOTE = $(COMMIT)
$(B)/sources: export NOTE = $(LIB_SRC) $(SERVER_SRC)
$(B)/flags $(B)/commit $(B)/sources: FORCE
	$(note)

$(UNIT_BIN) $(VK_BIN): %: %.o $(FIXTURE_OBJ) $(B)/libserver.a $(B)/libgemmule.a
	$(call say,LINK)
	$(link) -lcmocka -lmicrohttpd $(LDLIBS)

# Its functions of an instance and of a device stand before the driver's.
$(B)/tests/unit/backend/vk/t_vk_faults: private LDFLAGS += -Wl,--wrap=gm_volk_open,--wrap=gm_volk_load

# So do these.
$(B)/tests/unit/backend/vk/t_vk_loss: private LDFLAGS += -Wl,--wrap=gm_volk_load

# failalloc stands before libc and the sanitizer, so the allocations of libraries fail too.
$(OOM_BIN): %: %.o $(B)/tests/oom/failalloc.o $(FIXTURE_OBJ) $(B)/libserver.a $(B)/libgemmule.a
	$(call say,LINK)
	$(link) -lcmocka -lmicrohttpd $(LDLIBS)

$(REPLAY_BIN): $(B)/tests/fuzz/replay_%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/replay.o \
                                         $(B)/libgemmule.a
	$(call say,LINK)
	$(link) $(LDLIBS)

$(FUZZ_BIN): $(B)/%: $(B)/tests/fuzz/%.o $(B)/libgemmule.a
	$(call say,LINK)
	$(link) -fsanitize=fuzzer $(LDLIBS)

# How an example runs under a sanitizer; tests/lib builds them as their users do.
$(B)/examples/%: examples/%.c $(B)/libgemmule.a
	$(call say,LINK)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# ---- the shaders -------------------------------------------------------------------------------
# The manifest names the modules; each is compiled and checked, and all become one table in C.
# They are the same for every CONFIG. docs/VULKAN.md.

ifneq ($(VULKAN),0)
SHADERS := src/backend/vk/shaders
GLSLC := $(DEPS)/bin/glslc --target-env=vulkan1.3 -O -Werror -Isrc -I$(SHADERS)
SPIRV_VAL := $(DEPS)/bin/spirv-val --target-env vulkan1.3 --scalar-block-layout

$(DEPS)/%.done: scripts/deps-vulkan
	@DEPS=$(DEPS) scripts/deps-vulkan $*

# Targets that only start make again, or make nothing, do without.
ifneq ($(filter-out run quick test check check-rdna3 clean distclean format help print-%,$(or $(MAKECMDGOALS),all)),)
include build/spv/rules.mk
-include $(SPV:.spv=.d)

# An include that is gone is one that no source has any more: the .d of an older build may name it.
$(SHADERS)/inc/%.glsl: ;
endif

build/spv/rules.mk: $(SHADERS)/manifest.txt scripts/spv2c src/quant/qtype.h
	@mkdir -p $(@D)
	@scripts/spv2c rules $< $(@D) >$@

%.spv: $(DEPS)/tools.done build/spv/rules.mk
	$(call say,GLSL)
	$(Q)$(GLSLC) $(DEFINES) -MD -MF $*.d -MT $@ -o $*.tmp $(filter %.comp,$^)
	$(Q)$(SPIRV_VAL) $*.tmp
	$(Q)mv $*.tmp $@

build/spv/shaders.bin: $(SPV)
	$(Q)cat $^ >$@

build/spv/vk_table.c: $(SHADERS)/manifest.txt scripts/spv2c build/spv/shaders.bin
	$(call say,SPV2C)
	$(Q)scripts/spv2c table $< $(@D) >$@

shaders: $(SPV)
	@:

# What the compiler reads has to be there first; the words are read by the assembler, unseen.
$(call vulkan_only,$(LIB_OBJ) $(TEST_OBJ)): | $(DEPS)/tools.done
$(B)/build/spv/vk_table.o: build/spv/shaders.bin

# volk's own names would stand in the way of a program that has a Vulkan loader of its own.
$(B)/src/backend/vk/vk_volk.o: src/backend/vk/vk_volk.c $(B)/flags
	$(compile)
	$(Q)objcopy --wildcard -L 'vk*' -L 'volk*' $@
endif

# ---- a first answer ----------------------------------------------------------------------------

# The prompt is the user's text: make does not look into it, nor does the shell.
PROMPT ?= Tell me a story about a fox and a lantern
override PROMPT := $(value PROMPT)
export PROMPT

run:
	@scripts/setup run
	@$(MAKE) CONFIG=release all
	./gemmule run "$$PROMPT"

# ---- the tests ---------------------------------------------------------------------------------
# Each test is a command line; its name is what to type to run it again. docs/TESTING.md.

SHELL_TESTS := $(wildcard tests/cli/*.sh tests/lib/*.sh tests/golden/*.sh tests/checks/*.sh)
CHECKS := $(filter-out scripts/check-commits scripts/check-analysis,$(wildcard scripts/check-*))
in = $(patsubst $(B)/%,build/$(1)/%,$(2))
# What lies in a folder vk/ runs on Mesa's lavapipe, in the long tier also with validation layers, if
# it opens a device.
quoted = $(foreach t,$(1),'$(if $(call vulkan_only,$(t)),scripts/vulkan-env lvp )$(t)')

HTTP_QUICK := tests/http/openai.sh tests/http/curl.sh
HTTP_TESTS := $(filter-out $(HTTP_QUICK),$(wildcard tests/http/*.sh))
# Whole Vulkan models stand for single ops, whose kernels take minutes to compile.
ASAN_BIN := $(filter-out %/t_vk_ops,$(UNIT_BIN))
QUICK = $(call quoted,$(CHECKS) $(SHELL_TESTS) $(HTTP_QUICK) $(call in,release,$(UNIT_BIN))) \
        $(if $(VK_SRC),'scripts/vulkan-env phoenix $(VK_TESTS)/t_vk_kept --cache')
TEST = $(QUICK) $(call quoted,$(HTTP_TESTS)) $(call quoted,$(call in,asan,$(ASAN_BIN) $(OOM_BIN))) \
       $(foreach f,$(FUZZ_NAMES),'build/asan/tests/fuzz/replay_$(f) tests/fuzz/corpus/$(f)')
# What has threads, or talks to some.
TSAN_BIN := $(foreach t,base/t_workers engine/t_cache engine/t_clients engine/t_engine \
                       engine/t_loss engine/t_prefix engine/t_request server/t_replies server/t_server \
                       server/t_siege toolbox/t_synth,$(B)/tests/unit/$(t))
LONG = $(call quoted,$(call in,tsan,$(TSAN_BIN))) \
       $(foreach t,$(TSAN_SCRIPTS),'GEMMULE=build/tsan/gemmule tests/$(t).sh') \
       'build/tsan/examples/batch models/gemmule-mini.gguf one two three' \
       $(foreach c,gcc clang,'make -s JOBS=1 CONFIG=werror-$(c) objects') \
       $(call quoted,scripts/check-commits scripts/check-analysis) $(if $(COVERAGE),'scripts/coverage $(COVERAGE)') \
       $(foreach t,$(filter-out %/vulkan.sh %/help.sh,$(wildcard tests/cli/*.sh)),'GEMMULE=build/asan/gemmule $(t)') \
       $(call quoted,$(wildcard tests/slow/*.sh)) 'SOAK_SECONDS=$(SOAK_SECONDS) tests/http/soak.sh' \
       $(foreach t,$(filter-out %/t_vk_memory %/t_vk_record %/t_vk_shape %/t_vk_wait,$(call vulkan_only,$(call in,release,$(UNIT_BIN)))), \
         'scripts/vulkan-env -v lvp $(t)') \
       $(if $(VK_SRC),$(if $(OPS_STRIDE),'scripts/vulkan-env lvp $(VK_TESTS)/t_vk_ops --stride $(OPS_STRIDE)') \
         'scripts/vulkan-env lvp $(VK_TESTS)/t_vk_model --all' \
         'scripts/vulkan-env lvp $(VK_TESTS)/t_vk_draw --rows $(DRAW_ROWS)' tests/vk/rdna3.sh \
         'scripts/vulkan-env lvp $(VK_TESTS)/t_vk_faults --all' \
         'scripts/vulkan-env lvp $(VK_TESTS)/t_vk_loss --all' \
         $(foreach t,engine request,'scripts/vulkan-env lvp $(VK_TESTS:%backend/vk=%engine)/t_$(t) vulkan')) \
       $(foreach f,$(FUZZ_NAMES),'scripts/fuzz $(f) $(FUZZ_SECONDS)')
FUZZ_SECONDS ?= 30
SOAK_SECONDS ?= 600
DRAW_ROWS ?= 100000
# Each so many-th case of the table of ops on lavapipe, whose compiler takes most of the time; or none
# but those of make test.
OPS_STRIDE ?= 1
# What is measured: all, or host, without the tests that open a Vulkan device; or nothing.
COVERAGE ?= all
TSAN_SCRIPTS ?= cli/run cli/chat http/openai
VK_TESTS := build/release/tests/unit/backend/vk

quick:
	@$(MAKE) CONFIG=release all tests
	@tests/run $(QUICK)

test:
	@scripts/setup test
	@$(MAKE) CONFIG=release all tests
	@$(MAKE) CONFIG=asan all tests
	@TEST_TIMEOUT=900 tests/run $(TEST)

check:
	@scripts/setup test
	@$(MAKE) CONFIG=release all tests
	@$(MAKE) CONFIG=asan all tests
	@$(MAKE) CONFIG=tsan all $(call in,tsan,$(TSAN_BIN) $(B)/examples/batch)
	@$(MAKE) CONFIG=fuzz fuzzers
	@TEST_TIMEOUT=5400 tests/run $(if $(SKIP_TEST),,$(TEST)) $(LONG)

check-rdna3:
	@$(MAKE) CONFIG=release $(call in,release,$(VK_BIN))
	@tests/vk/rdna3.sh

# ---- installing --------------------------------------------------------------------------------

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DOCDIR ?= $(PREFIX)/share/doc/gemmule
# The program looks for its model here, seen from BINDIR: programs/bundled.c.
MODELDIR := $(BINDIR)/../share/gemmule

HEADERS := $(wildcard include/*.h)
DOCS := LICENSE README.md CHANGELOG.md
MANUAL := $(wildcard docs/*.md)
EXAMPLES := $(wildcard examples/*.c)
MODELS := $(wildcard models/*.gguf)
SHARED := libgemmule.so.$(VERSION)

# Every installed file: `install` makes their folders, `uninstall` removes them.
INSTALLED = $(BINDIR)/gemmule $(MODELS:models/%=$(MODELDIR)/%) $(HEADERS:include/%=$(INCLUDEDIR)/%) $(LIBDIR)/pkgconfig/gemmule.pc \
            $(addprefix $(LIBDIR)/,libgemmule.a $(SHARED) $(SONAME) libgemmule.so) \
            $(addprefix $(DOCDIR)/,$(DOCS) $(MANUAL) $(EXAMPLES))
put = install -m $(1) $(2) '$(DESTDIR)$(3)'

install: $(B)/gemmule $(B)/libgemmule.a $(B)/libgemmule.so
	$(Q)install -d $(foreach d,$(sort $(dir $(INSTALLED))),'$(DESTDIR)$(d)')
	$(Q)$(call put,755,$(B)/gemmule,$(BINDIR))
	$(Q)$(call put,644,$(MODELS),$(MODELDIR))
	$(Q)$(call put,644,$(HEADERS),$(INCLUDEDIR))
	$(Q)$(call put,644,$(B)/libgemmule.a,$(LIBDIR))
	$(Q)$(call put,755,$(B)/libgemmule.so,$(LIBDIR)/$(SHARED))
	$(Q)ln -sf $(SHARED) '$(DESTDIR)$(LIBDIR)/$(SONAME)'
	$(Q)ln -sf $(SONAME) '$(DESTDIR)$(LIBDIR)/libgemmule.so'
	$(Q)sed $(foreach v,PREFIX LIBDIR INCLUDEDIR VERSION,-e 's|@$(v)@|$($(v))|') gemmule.pc.in | \
	    $(call put,644,/dev/stdin,$(LIBDIR)/pkgconfig/gemmule.pc)
	$(Q)$(call put,644,$(DOCS),$(DOCDIR))
	$(Q)$(call put,644,$(MANUAL),$(DOCDIR)/docs)
	$(Q)$(call put,644,$(EXAMPLES),$(DOCDIR)/examples)
	$(if $(SILENT),,@$(foreach d,$(sort $(dir $(INSTALLED))),echo '  PUT   $(abspath $(DESTDIR)$(d))';))

uninstall:
	$(Q)rm -f $(foreach f,$(INSTALLED),'$(DESTDIR)$(f)')
	$(Q)rmdir '$(DESTDIR)$(MODELDIR)' '$(DESTDIR)$(DOCDIR)/examples' '$(DESTDIR)$(DOCDIR)/docs' '$(DESTDIR)$(DOCDIR)' \
	    2>/dev/null || true

# ---- the rest ----------------------------------------------------------------------------------

# The comment at the top of this file.
help:
	@sed -n '/^# make /,/^$$/s/^# \{0,1\}//p' Makefile

format:
	@find src include programs tests examples -name '*.[ch]' -exec clang-format -i {} +

# The scripts ask for the flags here, so that they are written once.
print-%:
	@echo '$($*)'

clean:
	rm -rf $(filter-out build/deps,$(wildcard build/*)) gemmule

distclean:
	rm -rf build gemmule

.PHONY: all lib tests fuzzers objects shaders run quick test check check-rdna3 install uninstall help format clean \
        distclean FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(patsubst %.o,%.d,$(LIB_OBJ) $(SERVER_OBJ) $(CLI_OBJ) $(TEST_OBJ))
