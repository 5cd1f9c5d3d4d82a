// SPDX-License-Identifier: MIT
//
// node llama.mjs GEMMULE: converts a small model to several types, loads each in llama.cpp, and
// compares token ids and greedy answers with gemmule's own.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { getLlama, LlamaLogLevel } from '../../build/llama/node_modules/node-llama-cpp/dist/index.js'

const gemmule = process.argv[2]
const types = ['f32', 'f16', 'bf16', 'q8_0', 'q6_k', 'q5_k_m', 'q4_k_m', 'balanced', 'q5_0', 'q5_1',
    'q4_0', 'q4_1', 'iq4_nl', 'iq4_xs', 'q3_k', 'q2_k']
const texts = [
    'Hello, world!', 'Once upon a time there was a fox.', '    if x:\n        return 1\n', 'a\tb\r\n',
    'Gr\u00fc\u00dfe \u65e5\u672c\u8a9e \u{1F98A}', '12+34=46', '', ' ', 'x  y   z',
]
const prompts = ['The fox', 'a lantern in the snow', '12 + 3', 'Where are', 'Once', 'snow', 'red', '7']

let passed = 0
let failed = 0
function check(what, ok, detail) {
    if (ok) passed++
    else {
        failed++
        console.log(`FAILED: ${what}: ${detail}`)
    }
}

const run = (...args) => execFileSync(gemmule, args, { stdio: ['ignore', 'pipe', 'pipe'] }).toString()
const ours = (model, text) =>
    JSON.parse(run('tokenize', '--json', '--no-bos', '--no-special', '-m', model, '--', text))
        .tokens.map((t) => t.id)

// Both answer greedily, with n tokens.
const answer = (model, prompt, n) =>
    JSON.parse(run('run', '--json', '-m', model, '--backend', 'ref', '--raw', '--temp', '0',
        '--max-tokens', String(n), '--', prompt)).text

async function theirAnswer(model, context, prompt, n) {
    const sequence = context.getSequence()
    const ids = [model.tokens.bos, ...model.tokenize(prompt, false)]
    const out = []
    for await (const id of sequence.evaluate(ids, { temperature: 0, yieldEogToken: true })) {
        if (model.isEogToken(id)) break
        out.push(id)
        if (out.length === n) break
    }
    sequence.dispose()
    return model.detokenize(out, false)
}

const folder = mkdtempSync(join(tmpdir(), 'gemmule-llama.'))
try {
    const source = join(folder, 'source.gguf')
    run('synth', source, '--type', 'bf16')
    const llama = await getLlama({ gpu: false, build: 'never', logLevel: LlamaLogLevel.error })
    for (const type of types) {
        const path = join(folder, `${type}.gguf`)
        run('convert', source, path, '--type', type)
        const model = await llama.loadModel({ modelPath: path })
        for (const text of texts) {
            const theirs = [...model.tokenize(text, false, 'trimLeadingSpace')]
            check(`${type}: ids of ${JSON.stringify(text)}`,
                JSON.stringify(theirs) === JSON.stringify(ours(path, text)), `${theirs}`)
        }
        // Weights are random, so the likeliest tokens are often nearly tied: llama.cpp, which rounds
        // activations to the weights' precision, may take another. Long answers only from floats.
        const isFloat = ['f32', 'f16'].includes(type)
        const context = await model.createContext({ contextSize: 128, sequences: 1, threads: 1 })
        let same = 0
        for (const prompt of prompts) {
            const a = answer(path, prompt, isFloat ? 6 : 1)
            const b = await theirAnswer(model, context, prompt, isFloat ? 6 : 1)
            if (a === b) same++
            else console.log(`${type}: after ${JSON.stringify(prompt)} ${JSON.stringify(a)}, ` +
                `llama.cpp has ${JSON.stringify(b)}`)
        }
        const least = prompts.length - (isFloat ? 1 : 2)
        check(`${type}: answers`, same >= least, `${same} of ${prompts.length} are the same`)
        await context.dispose()
        await model.dispose()
    }
} finally {
    rmSync(folder, { recursive: true })
}
console.log(`${passed} passed, ${failed} failed`)
process.exit(failed ? 1 : 0)
