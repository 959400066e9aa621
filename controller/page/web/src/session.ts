// SPDX-License-Identifier: Apache-2.0
import { Answer, Happening, Lease, Pool, PoolMap } from './model'

/** The connection is dead after this time without a byte, in ms. The server sends some every 10 s. */
const SILENCE = 30000

/** The server knows no such token, or the token lacks a right. */
export class Refused extends Error {}

async function ask(path: string, token: string, signal?: AbortSignal): Promise<Response> {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${token}` }, signal, cache: 'no-store' })
  if (answer.status === 401) throw new Refused('The API server does not know this token, or it has expired.')
  if (answer.status === 403) throw new Refused('This token may not list IPLeases, IPPools and ReservedIPs.')
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`)
  return answer
}

/** Calls on for each server-sent event, in order. EventSource cannot send a token. */
async function stream(token: string, signal: AbortSignal, on: (kind: string, data: any) => void) {
  const body = (await ask('api/events', token, signal)).body!.pipeThrough(new TextDecoderStream())
  let rest = ''
  const reader = body.getReader()
  for (;;) {
    const silence = setTimeout(() => reader.cancel(), SILENCE)
    const { value, done } = await reader.read()
    clearTimeout(silence)
    if (done) return
    const messages = (rest + value).split('\n\n')
    rest = messages.pop()!
    for (const message of messages) {
      const [, kind, data] = /^event: (.*)\ndata: (.*)$/.exec(message) ?? []
      if (kind) on(kind, JSON.parse(data))
    }
  }
}

/** What the page shows. It follows the controller until it is closed. */
export class Session {
  pools = new Map<string, Pool>()
  feed: Happening[] = []
  map?: PoolMap
  isOnline = false
  refusal = ''
  private wanted = ''
  private missed?: [string, Lease][] // changes while a pool is read
  private closed = new AbortController()
  private due = false

  constructor(private token: string, private changed: () => void) { void this.follow() }

  close() { this.closed.abort() }

  private tell() {
    if (this.due) return
    this.due = true
    // Not a frame: a hidden page gets none.
    setTimeout(() => { this.due = false; this.changed() }, 100)
  }

  private async follow() {
    for (let wait = 250; !this.refusal && !this.closed.signal.aborted; wait = Math.min(wait * 2, 5000)) {
      const connection = new AbortController()
      const signal = AbortSignal.any([connection.signal, this.closed.signal])
      try {
        await stream(this.token, signal, (kind, data) => {
          if (kind !== 'hello') return this.take(kind, data)
          this.feed = data ?? []
          wait = 250
          this.read().catch((e) => connection.abort(e))
        })
      } catch (e) {
        if (e instanceof Refused) this.refusal = e.message
      }
      this.isOnline = false
      this.tell()
      await new Promise((done) => setTimeout(done, wait))
    }
  }

  /** Reads everything again, after the stream has begun: so no change is missed. */
  private async read() {
    const pools: Pool[] = await (await ask('api/pools', this.token)).json()
    this.pools = new Map(pools.map((p) => [p.name, p]))
    if (!this.pools.has(this.wanted)) this.wanted = pools[0]?.name ?? ''
    await this.open(this.wanted)
    this.isOnline = true
    this.tell()
  }

  async open(name: string) {
    this.wanted = name
    const missed: [string, Lease][] = (this.missed = [])
    const answer: Answer | undefined = name ? await (await ask(`api/pools/${name}`, this.token)).json() : undefined
    if (this.missed !== missed) return // another pool was wanted meanwhile
    this.missed = undefined
    this.map = answer && new PoolMap(name, answer.grid, answer.leases)
    missed.forEach(([kind, lease]) => this.take(kind, lease))
    this.tell()
  }

  private take(kind: string, data: any) {
    if (kind === 'happening') this.feed = [...this.feed, data].slice(-100)
    if (kind === 'pool') {
      const was = this.pools.get(data.name)
      this.pools.set(data.name, data)
      const isOther = was && (was.generation !== data.generation || was.counts.reserved !== data.counts.reserved)
      if (isOther && data.name === this.wanted) this.open(this.wanted).catch(() => {}) // other addresses
    }
    if (kind === 'pool-gone') this.pools.delete(data)
    if (kind.startsWith('lease') && data.pool === this.wanted) {
      this.missed?.push([kind, data])
      if (this.map?.name === data.pool) kind === 'lease' ? this.map!.put(data) : this.map!.remove(data)
    }
    this.tell()
  }

  async explain(lease: string): Promise<{ sentences: string[]; record: object }> {
    return (await ask(`api/leases/${lease}`, this.token)).json()
  }
}
