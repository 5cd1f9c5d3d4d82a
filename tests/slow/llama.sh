#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Others can read what we write: llama.cpp itself, as npm's node-llama-cpp brings it, loads files that
# `gemmule convert` made, and has the same token ids and the same likeliest tokens.
cd "$(dirname "$0")/../.." || exit 1
version=3.22.1
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    echo "skip: there is no node and npm here"
    exit 77
fi
place=build/llama
if [ ! -e "$place/node_modules/node-llama-cpp/package.json" ]; then
    mkdir -p "$place"
    echo '{"private":true}' >"$place/package.json"
    if ! npm install --prefix "$place" --no-audit --no-fund --ignore-scripts \
        "node-llama-cpp@$version" >"$place/npm.log" 2>&1; then
        rm -rf "$place/node_modules"
        tail -n 5 "$place/npm.log"
        echo "skip: npm cannot install node-llama-cpp $version"
        exit 77
    fi
fi
exec node tests/slow/llama.mjs "$(realpath "${GEMMULE:-build/release/gemmule}")"
