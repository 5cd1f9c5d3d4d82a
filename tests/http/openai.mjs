// SPDX-License-Identifier: MIT
//
// The official client against a server: node openai.mjs URL CONTEXT
import { connect } from 'node:net'
import OpenAI from '../../build/http/node_modules/openai/index.mjs'
import { check, finish, metric, refused, same, until } from './check.mjs'

const url = process.argv[2]
const context = Number(process.argv[3])
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })

// Every request below ends by length, so that any model can be served.
const ask = (more, content = 'Tell me about the sea.') => ({
    model: 'gemma-3-27b-pure-hardware',
    messages: [{ role: 'user', content }],
    max_tokens: 12,
    seed: 5,
    ignore_eos: true,
    ...more,
})
const chat = (more, content) => client.chat.completions.create(ask(more, content))

async function collect(stream) {
    const all = { chunks: [], text: {}, finish: {}, usage: null, logprobs: [] }
    for await (const chunk of stream) {
        all.chunks.push(chunk)
        if (chunk.usage) all.usage = chunk.usage
        for (const c of chunk.choices) {
            all.text[c.index] = (all.text[c.index] ?? '') + (c.delta?.content ?? c.text ?? '')
            if (c.finish_reason) all.finish[c.index] = c.finish_reason
            if (c.logprobs?.content) all.logprobs.push(...c.logprobs.content)
        }
    }
    return all
}

async function testChat() {
    const r = await chat()
    same('the object', r.object, 'chat.completion')
    check('the id', /^chatcmpl-[0-9a-f]{24}$/.test(r.id), r.id)
    check('created is now', Math.abs(r.created - Date.now() / 1000) < 60, r.created)
    check('the answer names the model that answered', r.model !== 'gemma-3-27b-pure-hardware', r.model)
    same('one choice', r.choices.length, 1)
    same('its index', r.choices[0].index, 0)
    same('the role', r.choices[0].message.role, 'assistant')
    check('the content is text', r.choices[0].message.content.length > 0, r)
    same('the finish', r.choices[0].finish_reason, 'length')
    same('no log-probabilities', r.choices[0].logprobs, null)
    same('tokens of the answer', r.usage.completion_tokens, 12)
    same('the sum', r.usage.total_tokens, r.usage.prompt_tokens + 12)
    check('cached tokens are there', r.usage.prompt_tokens_details.cached_tokens >= 0, r.usage)
    check('the request id comes as a header', r._request_id === r.id, r._request_id)
    const again = await chat()
    same('the same seed, the same answer', again.choices[0].message.content, r.choices[0].message.content)
    const other = await chat({ seed: 6 })
    check('another seed, another answer',
        other.choices[0].message.content !== r.choices[0].message.content)
    const greedy = await Promise.all([1, 2].map((seed) => chat({ temperature: 0, seed })))
    same('temperature 0 needs no seed', greedy[0].choices[0].message.content, greedy[1].choices[0].message.content)
    const limit = await chat({ max_tokens: undefined, max_completion_tokens: 3 })
    same('max_completion_tokens', limit.usage.completion_tokens, 3)
}

async function testStream() {
    const whole = await chat()
    const s = await collect(await chat({ stream: true, stream_options: { include_usage: true } }))
    same('the text of a stream is that of a whole', s.text[0], whole.choices[0].message.content)
    same('the finish', s.finish, { 0: 'length' })
    same('the usage', s.usage.completion_tokens, 12)
    const first = s.chunks[0]
    same('the object', first.object, 'chat.completion.chunk')
    same('the first chunk has the role', first.choices[0].delta.role, 'assistant')
    same('and no usage', first.usage, null)
    same('the last chunk has no choice', s.chunks.at(-1).choices, [])
    check('one id', s.chunks.every((c) => c.id === first.id))
    const plain = await collect(await chat({ stream: true }))
    same('usage comes only where asked for', plain.usage, null)
    const helper = client.chat.completions.stream(ask())
    same("the client's helper agrees", (await helper.finalChatCompletion()).choices[0].message.content,
        whole.choices[0].message.content)
    const reply = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(ask({ stream: true })),
    })
    same('the type', reply.headers.get('content-type'), 'text/event-stream; charset=utf-8')
    const raw = await reply.text()
    check('it ends with [DONE]', raw.endsWith('\n\ndata: [DONE]\n\n'), raw.slice(-100))
    check('every line is an event', raw.split('\n\n').every((l) => l === '' || l.startsWith('data: ') || l.startsWith(': ')))
}

async function testLogprobs() {
    const r = await chat({ logprobs: true, top_logprobs: 20, temperature: 0, max_tokens: 6 })
    const content = r.choices[0].logprobs.content
    same('one for each token', content.length, 6)
    for (const t of content) {
        same('twenty candidates', t.top_logprobs.length, 20)
        same('greedy takes the first', t.token, t.top_logprobs[0].token)
        check('they fall', t.top_logprobs.every((c, i) => i === 0 || c.logprob <= t.top_logprobs[i - 1].logprob))
        check('their sum is a probability', t.top_logprobs.reduce((s, c) => s + Math.exp(c.logprob), 0) <= 1.0001)
        check('bytes are bytes', t.bytes.every((b) => Number.isInteger(b) && b >= 0 && b < 256))
    }
    const bytes = Buffer.from(content.flatMap((t) => t.bytes))
    same('the tokens are the text', bytes.toString(), r.choices[0].message.content)
    const s = await collect(await chat({ logprobs: true, top_logprobs: 20, temperature: 0, max_tokens: 6, stream: true }))
    same('a stream has the same', s.logprobs, content)
    const none = await chat({ logprobs: true, max_tokens: 2 })
    same('no candidates unless asked for', none.choices[0].logprobs.content[0].top_logprobs, [])
}

async function testChoices() {
    const r = await chat({ n: 3, temperature: 1.5 })
    same('three choices', r.choices.map((c) => c.index), [0, 1, 2])
    const texts = r.choices.map((c) => c.message.content)
    check('that differ', new Set(texts).size === 3, texts)
    same('the prompt counts once', r.usage.prompt_tokens, (await chat()).usage.prompt_tokens)
    same('answers count all', r.usage.completion_tokens, 36)
    const s = await collect(await chat({ n: 3, temperature: 1.5, stream: true }))
    same('a stream has the same', Object.values(s.text), texts)
    same('each ends', Object.values(s.finish), ['length', 'length', 'length'])
    const one = await chat({ temperature: 1.5 })
    same('the first is the one there would be alone', one.choices[0].message.content, texts[0])
}

async function testStop() {
    const whole = (await chat({ max_tokens: 40 })).choices[0].message.content
    const at = Math.floor(whole.length / 2)
    const stop = whole.slice(at, at + 3)
    const r = await chat({ max_tokens: 40, stop })
    same('the answer ends before it', r.choices[0].message.content, whole.slice(0, whole.indexOf(stop)))
    same('and says so', r.choices[0].finish_reason, 'stop')
    const s = await collect(await chat({ max_tokens: 40, stop: ['~no such~', stop], stream: true }))
    same('nothing of it is streamed', s.text[0], r.choices[0].message.content)
    same('the finish', s.finish, { 0: 'stop' })
    const long = { max_tokens: 40, stop: whole.slice(at, at + 12), logprobs: true }
    const cut = (await chat(long)).choices[0]
    const tokens = cut.logprobs.content.map((t) => t.token)
    check('its tokens reach the end of the text', tokens.join('').startsWith(cut.message.content), [tokens, cut.message.content])
    check('and none begins behind it', tokens.slice(0, -1).join('').length < cut.message.content.length, [tokens, cut.message.content])
    same('streamed too', (await collect(await chat({ ...long, stream: true }))).logprobs.map((t) => t.token), tokens)
}

async function testSampling() {
    const banned = (await chat({ logprobs: true, temperature: 0, max_tokens: 1 })).choices[0].logprobs.content[0]
    const ids = await (await fetch(`${url}/tokenize`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ content: banned.token }),
    })).json()
    if (ids.tokens.length === 1) {
        const r = await chat({ logit_bias: { [ids.tokens[0]]: -100 }, temperature: 0, max_tokens: 1 })
        check('a token of bias -100 is not drawn', r.choices[0].message.content !== banned.token)
    }
    await chat({ top_p: 0.5, top_k: 5, min_p: 0.1, repeat_penalty: 1.2, frequency_penalty: 1, presence_penalty: -1 })
    check('all options of sampling pass', true)
    const passes = {
        response_format: { type: 'text' }, tools: [], tool_choice: 'none', modalities: ['text'], store: false,
        service_tier: 'auto', audio: null, prediction: null, user: 'me', metadata: { a: 'b' }, logit_bias: {},
        prompt_cache_key: 'k', safety_identifier: 's', parallel_tool_calls: true, verbosity: 'medium',
    }
    await chat(passes)
    check('what asks for what happens anyway passes', true)
}

async function testMessages() {
    const tokens = async (messages) => (await chat({ messages, max_tokens: 1 })).usage.prompt_tokens
    const u = (content) => ({ role: 'user', content })
    const joined = await tokens([u('one\n\ntwo')])
    same('neighbours are joined', await tokens([u('one'), u('two')]), joined)
    same('parts are joined', await tokens([u([{ type: 'text', text: 'one\n\n' }, { type: 'text', text: 'two' }])]), joined)
    const s = await tokens([{ role: 'system', content: 'be kind' }, u('hello')])
    same('developer is system', await tokens([{ role: 'developer', content: 'be kind' }, u('hello')]), s)
    const a = { role: 'assistant', content: 'yes' }
    same('a later system message joins the next user turn',
        await tokens([u('one'), a, { role: 'system', content: 'be kind' }, u('hello')]),
        await tokens([u('one'), a, u('be kind\n\nhello')]))
    check('a system message alone is answered', (await tokens([{ role: 'system', content: 'x' }])) > 0)
}

async function testCompletions() {
    const make = (more) => client.completions.create({ model: 'any', prompt: 'Once', max_tokens: 8, seed: 3, ignore_eos: true, ...more })
    const r = await make()
    same('the object', r.object, 'text_completion')
    same('the finish', r.choices[0].finish_reason, 'length')
    const many = await make({ prompt: ['Once', 'Twice', 'Thrice'], n: 2 })
    same('several prompts, several answers', many.choices.map((c) => c.index), [0, 1, 2, 3, 4, 5])
    same('the first as if alone', many.choices[0].text, r.choices[0].text)
    const ids = await (await fetch(`${url}/tokenize`, {
        method: 'POST', headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ content: 'Once', add_special: true }),
    })).json()
    same('tokens are as good as text', (await make({ prompt: ids.tokens })).choices[0].text, r.choices[0].text)
    same('arrays of tokens too', (await make({ prompt: [ids.tokens, ids.tokens] })).choices[1].text, r.choices[0].text)
    same('echo', (await make({ echo: true })).choices[0].text, `Once${r.choices[0].text}`)
    same('max_tokens is 16', (await make({ max_tokens: undefined })).usage.completion_tokens, 16)
    const s = await collect(await make({ stream: true, echo: true, stream_options: { include_usage: true } }))
    same('a stream', s.text[0], `Once${r.choices[0].text}`)
    same('its usage', s.usage.completion_tokens, 8)
    const lp = (await make({ logprobs: 3 })).choices[0].logprobs
    same('log-probabilities', [lp.tokens.length, lp.token_logprobs.length, lp.top_logprobs.length, lp.text_offset.length], [8, 8, 8, 8])
    const hot = (await make({ logprobs: 3, temperature: 2, top_k: 0, top_p: 1, max_tokens: 40 })).choices[0].logprobs
    check('three candidates, and the token where it is none of them', [lp, hot].every((l) => l.tokens.every((t, i) => {
        const names = Object.keys(l.top_logprobs[i])
        return l.top_logprobs[i][t] === l.token_logprobs[i] && names.length <= 3 + (names.at(-1) === t)
    })), [lp, hot])
    same('the first token is at 0', lp.text_offset[0], 0)
}

async function testPromptLogprobs() {
    const make = (more) => client.completions.create({ model: 'any', prompt: 'Once upon a time there was', seed: 3, ...more })
    const r = await make({ echo: true, logprobs: 2, max_tokens: 0 })
    const lp = r.choices[0].logprobs
    same('no token is drawn', r.usage.completion_tokens, 0)
    same('the text is the prompt', r.choices[0].text, 'Once upon a time there was')
    same('one for each token of the prompt but <bos>', lp.tokens.length, r.usage.prompt_tokens - 1)
    same('which are its text', lp.tokens.join(''), r.choices[0].text)
    check('the first has one too', lp.token_logprobs.every((x) => typeof x === 'number' && x <= 0), lp.token_logprobs)
    same('from 0 on', lp.text_offset.slice(0, 2), [0, lp.tokens[0].length])
    same('the finish', r.choices[0].finish_reason, 'length')
    // What the model draws after half a prompt has the probability that it has in the whole prompt.
    const half = await make({ prompt: 'Once upon', echo: true, logprobs: 0, max_tokens: 4, temperature: 0, ignore_eos: true })
    const drawn = half.choices[0].logprobs
    const ids = async (content) => (await (await fetch(`${url}/tokenize`, {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ content, add_special: true }),
    })).json()).tokens
    const n = (await ids('Once upon')).length
    same('echo has prompt and answer', drawn.tokens.length, n - 1 + 4)
    const headless = await make({ prompt: (await ids('Once upon')).slice(1), echo: true, logprobs: 0, max_tokens: 0 })
    same('what has nothing before it has none', headless.choices[0].logprobs.token_logprobs[0], null)
    const s = await collect(await make({ echo: true, logprobs: 2, max_tokens: 2, ignore_eos: true, stream: true }))
    check('a stream echoes', s.text[0].startsWith('Once upon a time there was'), s.text)
    same('its first chunk has the prompt', s.chunks[0].choices[0].text, 'Once upon a time there was')
    same('and its log-probabilities', s.chunks[0].choices[0].logprobs, lp)
}

async function testIdle() {
    const idle = Array.from({ length: 1100 }, () => connect(new URL(url).port, '127.0.0.1'))
    for (const socket of idle) socket.on('error', () => {})
    await until('they are many', async () => (await metric(url, 'connections')) >= 800)
    same('and keep nobody out', (await fetch(`${url}/health`)).status, 200)
    for (const socket of idle) socket.destroy()
}

async function testErrors() {
    const cases = [
        ['an unknown field', { no_such_field: 1 }, 'no_such_field'],
        ['tools', { tools: [{ type: 'function', function: { name: 'f' } }] }, 'tools'],
        ['a JSON schema', { response_format: { type: 'json_object' } }, 'response_format'],
        ['a temperature too high', { temperature: 3 }, 'temperature'],
        ['a temperature of text', { temperature: 'hot' }, 'temperature'],
        ['n of 0', { n: 0 }, 'n'],
        ['n of 129', { n: 129 }, 'n'],
        ['too many candidates', { logprobs: true, top_logprobs: 21 }, 'top_logprobs'],
        ['candidates without log-probabilities', { top_logprobs: 2 }, 'top_logprobs'],
        ['two limits', { max_completion_tokens: 3 }, 'max_tokens'],
        ['an empty stop string', { stop: '' }, 'stop'],
        ['a bias out of range', { logit_bias: { 5: 101 } }, 'logit_bias.5'],
        ['a bias of no token', { logit_bias: { 99999999: 1 } }, 'logit_bias.99999999'],
        ['a bias of a word', { logit_bias: { five: 1 } }, 'logit_bias.five'],
        ['no messages', { messages: [] }, 'messages'],
        ['an unknown role', { messages: [{ role: 'tool', content: 'x' }] }, 'messages[0].role'],
        ['an image', { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:' } }] }] }, 'messages[0].content[0].type'],
        ['stream options without a stream', { stream_options: { include_usage: true } }, 'stream_options'],
        ['a seed of text', { seed: 'x' }, 'seed'],
    ]
    for (const [what, more, param] of cases) {
        const e = await refused(what, chat(more))
        same(`${what}: 400`, [e.status, e.param, e.type], [400, param, 'invalid_request_error'])
        check(`${what}: a sentence`, e.error?.message?.length > 10, e.error)
    }
    const long = await refused('a prompt that does not fit', chat({}, 'word '.repeat(2 * context)))
    same('its status, code and field', [long.status, long.code, long.param], [400, 'context_length_exceeded', 'messages'])
    check('both numbers are named', new RegExp(`^the prompt has \\d+ tokens.*${context - 1}`).test(long.error?.message), long.error?.message)
    const full = await chat({ max_tokens: 100000 })
    same('an answer past the context ends with length', full.choices[0].finish_reason, 'length')
    same('and fills it', full.usage.total_tokens, context)
    const e = await refused('an unknown model', client.models.retrieve('no-such-model'))
    same('404', e.status, 404)
}

async function testModels() {
    const list = []
    for await (const m of client.models.list()) list.push(m)
    same('one model', list.length, 1)
    same('its context', list[0].context_length, context)
    same('by name', (await client.models.retrieve(list[0].id)).id, list[0].id)
}

async function testAbort() {
    const before = await metric(url, 'cancelled_total')
    const stream = await chat({ stream: true, max_tokens: 100000, temperature: 1 })
    let n = 0
    for await (const chunk of stream) {
        if (chunk.choices.length && ++n === 5) break // leaves the loop and closes the connection
    }
    await until('the server sees that the client left', async () => (await metric(url, 'cancelled_total')) === before + 1)
    await until('and runs nothing any more', async () => (await metric(url, 'requests_running')) === 0)
    const abort = new AbortController()
    const waiting = refused('an aborted request', client.chat.completions.create(ask({ max_tokens: 100000 }), { signal: abort.signal }))
    await until('a whole reply is being made', async () => (await metric(url, 'requests_running')) === 1)
    abort.abort()
    await waiting
    await until('it is cancelled while its connection sleeps', async () => (await metric(url, 'requests_running')) === 0)
}

async function testCrowd() {
    const seeds = [...Array(24).keys()]
    const alone = []
    for (const seed of seeds) alone.push((await chat({ seed, max_tokens: 20 + seed })).choices[0].message.content)
    const crowd = await Promise.all(seeds.map((seed) => chat({ seed, max_tokens: 20 + seed })))
    same('the same alone and in a crowd', crowd.map((r) => r.choices[0].message.content), alone)
}

const tests = { testChat, testStream, testLogprobs, testChoices, testStop, testSampling, testMessages,
    testCompletions, testPromptLogprobs, testErrors, testIdle, testModels, testAbort, testCrowd }
for (const [name, test] of Object.entries(tests)) {
    try {
        await test()
    } catch (e) {
        check(`${name} ends`, false, String(e.stack ?? e))
    }
}
finish()
