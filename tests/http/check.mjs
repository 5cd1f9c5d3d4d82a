// SPDX-License-Identifier: MIT
//
// What the tests in JavaScript share: counted assertions, and the line that tests/run reads.
let passed = 0
let failed = 0

export function check(what, ok, seen) {
    if (ok) {
        passed++
        return
    }
    failed++
    console.log(`FAILED: ${what}`)
    if (seen !== undefined) console.log(`  seen: ${JSON.stringify(seen)?.slice(0, 2000)}`)
}

export function same(what, a, b) {
    check(what, JSON.stringify(a) === JSON.stringify(b), [a, b])
}

// The promise must fail, and the failure is returned.
export async function refused(what, promise) {
    try {
        const got = await promise
        check(`${what}: should be refused`, false, got)
        return {}
    } catch (e) {
        check(`${what}: should be refused`, true)
        return e
    }
}

export async function until(what, condition, seconds = 10) {
    for (const end = Date.now() + 1000 * seconds; Date.now() < end;) {
        if (await condition()) {
            check(what, true)
            return
        }
        await new Promise((r) => setTimeout(r, 20))
    }
    check(`${what}: not within ${seconds} seconds`, false)
}

export function finish() {
    console.log(`${passed} passed, ${failed} failed`)
    process.exit(failed ? 1 : 0)
}

// One number of /metrics.
export async function metric(url, name) {
    const text = await (await fetch(`${url}/metrics`)).text()
    const line = text.split('\n').find((l) => l.startsWith(`gemmule_${name} `))
    return line === undefined ? undefined : Number(line.split(' ')[1])
}
