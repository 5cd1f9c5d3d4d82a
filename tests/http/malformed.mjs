// SPDX-License-Identifier: MIT
//
// Requests that no client should send: node malformed.mjs URL COUNT [SEED]
//
// Each is made of a valid one by rules below, chosen by a generator with a seed, which is printed.
// The server may answer with what fits, or close the connection; it may not fail.
import net from 'node:net'
import { check, finish, metric, same, until } from './check.mjs'

const url = process.argv[2]
const count = Number(process.argv[3])
const port = Number(new URL(url).port)
let state = BigInt(process.argv[4] ?? Date.now())
console.log(`seed ${state}`)

// splitmix64
function random(n) {
    state = (state + 0x9e3779b97f4a7c15n) & 0xffffffffffffffffn
    let z = state
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & 0xffffffffffffffffn
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & 0xffffffffffffffffn
    return Number((z ^ (z >> 31n)) % BigInt(n))
}
const pick = (list) => list[random(list.length)]
const bytes = (n) => Buffer.from([...Array(n)].map(() => random(256)))

const values = [null, true, false, 0, 1, -1, 1e308, -1e308, 0.5, 2 ** 53, 18446744073709551615, '', 'x', '\u0000', '\ud800', [], {}, [[]], [null], { a: 1 }, 'x'.repeat(5000)]
const names = ['messages', 'prompt', 'model', 'max_tokens', 'temperature', 'top_p', 'n', 'stop', 'seed', 'logit_bias', 'logprobs', 'top_logprobs', 'stream', 'stream_options', 'user', 'metadata', 'tools', 'response_format', 'echo', 'content', 'tokens', 'top_k', 'min_p', 'ignore_eos', 'nonsense', '', '\u0000', '__proto__']
const paths = ['/v1/chat/completions', '/v1/completions', '/tokenize', '/detokenize']

function valid(path) {
    if (path === '/tokenize') return { content: 'some text' }
    if (path === '/detokenize') return { tokens: [5, 6, 7] }
    const base = { max_tokens: 1 + random(3), seed: 1, stream: random(2) === 0 }
    return path === '/v1/completions' ? { prompt: 'Once', ...base } : { messages: [{ role: 'user', content: 'Hi' }], ...base }
}

// ---- bodies ----------------------------------------------------------------------------------
const bodies = {
    otherValue: (b) => JSON.stringify({ ...b, [pick(names)]: pick(values) }),
    otherValues: (b) => JSON.stringify({ ...b, [pick(names)]: pick(values), [pick(names)]: pick(values), [pick(names)]: pick(values) }),
    fewer: (b) => { const c = { ...b }; delete c[pick(Object.keys(c))]; return JSON.stringify(c) },
    cut: (b) => { const s = JSON.stringify(b); return s.slice(0, random(s.length)) },
    flipped: (b) => { const s = Buffer.from(JSON.stringify(b)); s[random(s.length)] ^= 1 << random(8); return s },
    inserted: (b) => { const s = Buffer.from(JSON.stringify(b)); const at = random(s.length); return Buffer.concat([s.subarray(0, at), bytes(1 + random(8)), s.subarray(at)]) },
    noise: () => bytes(random(300)),
    deep: () => pick(['[', '{"a":']).repeat(1 + random(20000)),
    deepField: (b) => `{"messages":${'['.repeat(random(3000))}`,
    long: (b) => JSON.stringify({ ...b, user: 'u'.repeat(random(200000)) }),
    manyFields: () => JSON.stringify(Object.fromEntries([...Array(random(3000)).keys()].map((i) => [`f${i}`, i]))),
    manyMessages: () => JSON.stringify({ messages: [...Array(random(2000))].map(() => ({ role: pick(['user', 'assistant', 'system', 'tool', 7]), content: pick(values) })), max_tokens: 1 }),
    numbers: () => JSON.stringify({ prompt: [...Array(random(400))].map(() => pick([5, -1, 1e9, 2.5, '7', 262143])), max_tokens: 1 }),
    utf16: (b) => Buffer.from(JSON.stringify(b), 'utf16le'),
    bom: (b) => Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from(JSON.stringify(b))]),
    badUtf8: (b) => Buffer.concat([Buffer.from('{"messages":[{"role":"user","content":"'), bytes(10), Buffer.from('"}]}')]),
    empty: () => '',
    twice: (b) => JSON.stringify(b) + JSON.stringify(b),
}

// ---- heads -----------------------------------------------------------------------------------
const head = (method, path, headers, version = 'HTTP/1.1') =>
    `${method} ${path} ${version}\r\n${headers.map((h) => `${h}\r\n`).join('')}\r\n`
const usual = (n) => ['Host: localhost', 'Content-Type: application/json', `Content-Length: ${n}`]

const heads = {
    method: (p, b) => head(pick(['GET', 'PUT', 'DELETE', 'PATCH', 'TRACE', 'CONNECT', 'OPTIONS', 'HEAD', 'get', 'X', '\x01']), p, usual(b.length)) + b,
    path: (p, b) => head('POST', pick(['/', '*', '/v1', `${p}/`, `${p}?x=${'y'.repeat(random(40000))}`, `/${'a/'.repeat(random(9000))}`, '/%00', '/%', '/%zz', '/../../etc/passwd', 'http://x/', '/\xff', '']), usual(b.length)) + b,
    version: (p, b) => head('POST', p, usual(b.length), pick(['HTTP/1.0', 'HTTP/0.9', 'HTTP/2.0', 'HTTP/9.9', 'HTTX/1.1', '', 'HTTP/1.1x'])) + b,
    length: (p, b) => head('POST', p, ['Host: localhost', 'Content-Type: application/json', `Content-Length: ${pick(['-1', 'x', '99999999999999999999', '1e3', '0x10', '', ' 5', '5 5', '+5', String(2 ** 31), String(2 ** 63)])}`]) + b,
    lengths: (p, b) => head('POST', p, [...usual(b.length), `Content-Length: ${b.length + 1}`]) + b,
    both: (p, b) => head('POST', p, [...usual(b.length), 'Transfer-Encoding: chunked']) + b,
    chunks: (p, b) => head('POST', p, ['Host: localhost', 'Content-Type: application/json', 'Transfer-Encoding: chunked']) + pick([`${b.length.toString(16)}\r\n${b}\r\n0\r\n\r\n`, 'zz\r\nxx\r\n', 'ffffffffffffffffff\r\nx', '-5\r\nx\r\n', `5\r\n${b}`, '0\r\n\r\n', `5;${'e'.repeat(5000)}\r\nabcde\r\n0\r\n\r\n`]),
    coding: (p, b) => head('POST', p, [...usual(b.length), `Transfer-Encoding: ${pick(['gzip', 'identity', 'chunked, chunked', 'x', ''])}`]) + b,
    noHost: (p, b) => head('POST', p, usual(b.length).slice(1)) + b,
    hosts: (p, b) => head('POST', p, ['Host: y', ...usual(b.length)]) + b,
    arguments: (p, b) => head('POST', `${p}?${pick(['a&', '&', 'a=b&', '%41=&'])}`.padEnd(p.length + random(9000), pick(['a&', '&', 'a=b&'])), usual(b.length)) + b,
    cookies: (p, b) => head('POST', p, [...usual(b.length), `Cookie: ${pick(['a;', 'a=b;', ';'])}`.padEnd(random(20000), pick(['a;', 'a=b;']))]) + b,
    longHeader: (p, b) => head('POST', p, [...usual(b.length), `X: ${'x'.repeat(random(60000))}`]) + b,
    manyHeaders: (p, b) => head('POST', p, [...usual(b.length), ...[...Array(random(2000)).keys()].map((i) => `X${i}: ${i}`)]) + b,
    oddHeader: (p, b) => head('POST', p, [...usual(b.length), pick([': x', 'x', 'a b: c', '\x00: \x00', 'X\x80: \xff', ' folded', 'X:\x01\x02', 'Authorization:', 'Authorization: Bearer', 'Expect: x', 'Connection: upgrade', 'Upgrade: h2c', 'Content-Type: ', 'Accept: \xff', 'Cookie: ;=;='])]) + b,
    lineEnds: (p, b) => head('POST', p, usual(b.length)).replaceAll('\r\n', pick(['\n', '\r', '\n\r', '\r\r\n'])) + b,
    type: (p, b) => head('POST', p, ['Host: localhost', `Content-Type: ${pick(['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'application/jsonx', 'APPLICATION/JSON', 'application/json;charset=latin1'])}`, `Content-Length: ${b.length}`]) + b,
    noise: () => bytes(1 + random(2000)),
    tls: () => Buffer.concat([Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01]), bytes(300)]),
    pipeline: (p, b) => (head('POST', p, usual(b.length)) + b).repeat(3),
}

// ---- sending ---------------------------------------------------------------------------------
const seen = new Map()
const bad = []

// Sends the bytes, maybe in pieces with pauses, maybe closing one half or all of it at some point.
function send(data, what) {
    return new Promise((resolve) => {
        const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true })
        const raw = []
        let over = false
        const end = () => {
            if (over) return
            over = true
            clearTimeout(limit)
            socket.destroy()
            const reply = Buffer.concat(raw).toString('latin1')
            const status = /^HTTP\/1\.[01] (\d+)/.exec(reply)?.[1] ?? 'none'
            seen.set(status, (seen.get(status) ?? 0) + 1)
            if (/^5/.test(status) && status !== '501' && status !== '505') bad.push([what, status, data.toString('latin1').slice(0, 300), reply.slice(-300)])
            resolve()
        }
        const limit = setTimeout(end, 400 + random(100))
        socket.on('error', end)
        socket.on('close', end)
        socket.on('end', end)
        socket.on('data', (d) => {
            raw.push(d)
            if (random(20) === 0) end() // gone in the middle of the reply
            else if (Buffer.concat(raw).includes('\r\n\r\n') && random(2)) setTimeout(end, 20)
        })
        const mode = random(12)
        if (mode === 0) { // slowly
            const step = 1 + Math.floor(data.length / 10)
            for (let i = 0; i * step < data.length; i++) {
                setTimeout(() => over || socket.write(data.subarray(i * step, (i + 1) * step)), 10 * i)
            }
        } else if (mode === 1) {
            socket.write(data.subarray(0, random(data.length + 1)))
            socket.end()
        } else if (mode === 2) {
            socket.write(data.subarray(0, random(data.length + 1)), end)
        } else if (mode === 3) {
            socket.end(data)
        } else {
            socket.write(data)
        }
    })
}

async function one() {
    const path = pick(paths)
    if (random(2)) {
        const kind = pick(Object.keys(bodies))
        const body = Buffer.from(bodies[kind](valid(path)))
        const top = Buffer.from(head('POST', path, usual(body.length)))
        return send(Buffer.concat([top, body]), `body ${kind}`)
    }
    const kind = pick(Object.keys(heads))
    const made = heads[kind](path, JSON.stringify(valid(path)))
    return send(Buffer.isBuffer(made) ? made : Buffer.from(made, 'latin1'), `head ${kind}`)
}

let left = count
await Promise.all([...Array(32)].map(async () => {
    while (left-- > 0) await one()
}))
const counts = Object.fromEntries([...seen].sort())
console.log(`statuses: ${JSON.stringify(counts)}`)
same('no failure of the server', bad.slice(0, 3), [])
check('many were refused', (counts['400'] ?? 0) > count / 10, counts)
check('some were served', (counts['200'] ?? 0) > 0, counts)
await until('nothing runs any more', async () => (await metric(url, 'requests_running')) === 0, 30)
const health = await fetch(`${url}/health`)
same('the server is well', health.status, 200)
finish()
