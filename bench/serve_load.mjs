// SPDX-License-Identifier: MIT
//
// The measurements of bench/serve_load: node serve_load.mjs MODEL FOLDER COMMIT MACHINE OUT
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import path from 'node:path'

const [model, folder, commit, machine, out] = process.argv.slice(2)
const TOKENS = Number(process.env.TOKENS)
const ROUNDS = Number(process.env.ROUNDS)
const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity })
const rows = []
let server, port

async function start(...options) {
    server = spawn(process.env.GEMMULE, ['serve', '-m', model, '--port', '0', '--timeout', '3600', ...options],
        { stdio: ['ignore', 'pipe', 'ignore'] })
    port = await new Promise((resolve, reject) => {
        let text = ''
        server.on('exit', (code) => reject(new Error(`the server ended with ${code}`)))
        server.stdout.on('data', (d) => {
            text += d
            const found = / on http:\/\/[^ ]*:(\d+),/.exec(text)
            if (found) resolve(Number(found[1]))
        })
    })
}

async function stop() {
    server.removeAllListeners('exit')
    const ended = new Promise((r) => server.on('exit', r))
    server.kill('SIGTERM')
    await ended
}

// One stream: seconds to its first token (comments come before it). `begun` is called with that token.
function stream(prompt, tokens, seed, begun = () => {}) {
    return new Promise((resolve, reject) => {
        const body = JSON.stringify({ prompt, max_tokens: tokens, ignore_eos: true, stream: true, seed, temperature: 1 })
        const began = performance.now()
        const request = http.request({
            host: '127.0.0.1', port, path: '/v1/completions', method: 'POST', agent,
            headers: { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) },
        })
        let first = 0
        request.on('error', reject)
        request.on('response', (reply) => {
            reply.on('data', (d) => {
                if (first || !d.includes('data: {')) return
                first = (performance.now() - began) / 1000
                begun()
            })
            reply.on('end', () => resolve(first))
        })
        request.end(body)
    })
}

async function metric(name) {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
    return Number(new RegExp(`^gemmule_${name} (.*)$`, 'm').exec(text)[1])
}

async function until(name, value) {
    while (await metric(name) !== value) await new Promise((r) => setTimeout(r, 50))
}

async function tokensNow() {
    return { s: performance.now() / 1000, tokens: await metric('completion_tokens_total') }
}

const rate = (a, b) => (b.tokens - a.tokens) / (b.s - a.s)

// Tokens a second of so many clients together: from the first request to the last token, prompts
// and all; and from when the last client has its first token to when the first has its last.
async function throughput(clients, salt) {
    let waiting = clients
    let allBegun
    const began = await tokensNow()
    const streams = [...Array(clients).keys()].map((i) => stream(`${i} ${salt}`, TOKENS, i, () => {
        if (--waiting === 0) allBegun = tokensNow()
    }))
    await Promise.race(streams)
    const oneEnded = await tokensNow()
    await Promise.all(streams)
    return { whole: rate(began, await tokensNow()), streaming: rate(await allBegun, oneEnded) }
}

function median(list) {
    const sorted = [...list].sort((a, b) => a - b)
    const half = sorted.length / 2
    return (sorted[Math.ceil(half) - 1] + sorted[Math.floor(half)]) / 2
}

const spread = (list) => (Math.max(...list) - Math.min(...list)) / median(list)

function report(scenario, unit, variants) {
    for (const [variant, values] of Object.entries(variants)) {
        values.forEach((value, run) => rows.push({ scenario, variant, run, value, unit }))
        console.log(`${scenario.padEnd(22)} ${variant.padEnd(26)} ${median(values).toFixed(3)} ${unit}, spread ${(100 * spread(values)).toFixed(1)} %`)
    }
}

// A, B, A, B ...: whatever drifts meets both.
async function alternate(a, b) {
    const values = [[], []]
    for (let i = 0; i < 2 * ROUNDS; i++) values[i % 2].push(await (i % 2 ? b : a)(i))
    return values
}

async function crowd() {
    await start('--parallel', '32', '--ctx', '512')
    await throughput(2, 'warm')
    const [one, many] = await alternate((i) => throughput(1, `one ${i}`), (i) => throughput(32, `many ${i}`))
    for (const [what, of] of [['while all stream', 'streaming'], ['with their prompts', 'whole']]) {
        const [a, b] = [one, many].map((runs) => runs.map((r) => r[of]))
        report(what, 'tok/s', { '1 client': a, '32 clients': b })
        console.log(`32 clients get ${(median(b) / median(a)).toFixed(2)} times the tokens of one`)
    }
    await stop()
}

async function company() {
    await start('--parallel', '16', '--ctx', '1024')
    await throughput(2, 'warm')
    let others = []
    const join = async () => {
        others = [...Array(200)].map(() => net.connect({ port, host: '127.0.0.1' }).on('error', () => {}))
        const body = JSON.stringify({ prompt: 'slow', max_tokens: 900, ignore_eos: true, stream: true, n: 4, logprobs: 20 })
        const slow = net.connect({ port, host: '127.0.0.1' }).on('error', () => {})
        slow.write(`POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
        slow.pause()
        others.push(slow)
        await until('requests_parked', 4) // it is behind
    }
    const leave = async () => {
        others.forEach((s) => s.destroy())
        await until('requests_running', 0)
    }
    const [alone, among] = await alternate(async (i) => (await throughput(8, `alone ${i}`)).whole, async (i) => {
        await join()
        const speed = (await throughput(8, `among ${i}`)).whole
        await leave()
        return speed
    })
    report('slow reader, 200 idle', 'tok/s', { '8 clients alone': alone, '8 clients among them': among })
    await stop()
}

async function again() {
    const cache = ['--cache-dir', `${folder}/cache`, '--ctx', '2304', '--parallel', '2']
    const prompt = (i) => [2, ...[...Array(1999).keys()].map((k) => 1000 + ((k * 7919 + i * 104729) % 20000))]
    const first = []
    const second = []
    const restarted = []
    await start(...cache)
    await throughput(1, 'warm')
    for (let i = 0; i < ROUNDS; i++) {
        first.push(await stream(prompt(i), 2, 1))
        second.push(await stream(prompt(i), 2, 1))
    }
    await stop()
    await start(...cache)
    await throughput(1, 'warm')
    for (let i = 0; i < ROUNDS; i++) restarted.push(await stream(prompt(i), 2, 1))
    await stop()
    report('first token of 2,000', 's', { 'first time': first, again: second, 'after a restart': restarted })
    console.log(`again ${(median(first) / median(second)).toFixed(0)} times sooner, after a restart ${(median(first) / median(restarted)).toFixed(0)} times`)
}

// Bars of the medians of this commit's rows, one group a scenario, each on a scale of its own.
function plot(csv) {
    const rows = fs.readFileSync(csv, 'utf8').trim().split('\n').slice(1)
        .map((line) => JSON.parse(`[${line}]`))
        .filter((f) => f[0] === commit)
        .map(([, , , scenario, variant, run, value, unit]) => ({ scenario, variant, run, value: Number(value), unit }))
    const groups = [...new Set(rows.map((r) => r.scenario))]
    const colours = ['#4878a8', '#e08a3c', '#6aa84f']
    let y = 40
    let svg = ''
    for (const g of groups) {
        const of = rows.filter((r) => r.scenario === g)
        const variants = [...new Set(of.map((r) => r.variant))]
        const most = Math.max(...of.map((r) => r.value))
        svg += `<text x="20" y="${y}" font-weight="bold">${g} (${of[0].unit})</text>\n`
        variants.forEach((v, i) => {
            const values = of.filter((r) => r.variant === v).map((r) => r.value)
            const width = (400 * median(values)) / most
            y += 24
            svg += `<text x="20" y="${y + 12}">${v}</text><rect x="200" y="${y}" width="${width.toFixed(1)}" height="16" fill="${colours[i]}"/>`
            svg += values.map((x) => `<circle cx="${(200 + (400 * x) / most).toFixed(1)}" cy="${y + 8}" r="2.5"/>`).join('')
            svg += `<text x="${(210 + width).toFixed(1)}" y="${y + 12}">${median(values).toPrecision(3)}</text>\n`
        })
        y += 50
    }
    fs.writeFileSync(`${out}.svg`, `<svg xmlns="http://www.w3.org/2000/svg" width="720" height="${y}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/><text x="20" y="18">gemmule serve, ${commit}, ${machine}</text>
${svg}</svg>\n`)
}

const parts = { crowd, company, again }
for (const name of (process.env.PARTS ?? 'crowd,company,again').split(',')) await parts[name]()
const csv = `${out}.csv`
fs.mkdirSync(path.dirname(csv), { recursive: true })
if (!fs.existsSync(csv)) fs.writeFileSync(csv, 'commit,machine,model,scenario,variant,run,value,unit\n')
const quoted = (s) => JSON.stringify(String(s))
fs.appendFileSync(csv, rows.map((r) => [commit, machine, model.split('/').at(-1), r.scenario, r.variant, r.run, r.value.toFixed(6), r.unit].map(quoted).join(',')).join('\n') + '\n')
plot(csv)
console.log(`rows in ${csv}, picture in ${out}.svg`)
