// SPDX-License-Identifier: Apache-2.0
import { format, parse } from './address'

export interface Condition { type: string; status: string; reason: string; message: string }
export interface Pool {
  name: string; subnet: string; network?: string; disabled?: boolean; generation: number
  counts: Record<string, number>; conditions: Condition[] | null
}
export interface Lease {
  name: string; pool: string; address: string; state: string
  reason?: string; node?: string; namespace?: string; pod?: string; mac?: string
  said?: string // of a virtual address, which has no lease
}
export interface Grid { first?: string; size: number; runs: string }
export interface Answer { pool: Pool; grid: Grid; leases: Lease[] }
export interface Happening { at: string; kind: string; address: string; lease: string; pool: string; text: string }
export interface Filter { text: string; namespace: string; node: string; states: string }

/** The states in the order of the key. Their letters are those of the server. */
export const STATES: { letter: string; name: string; meaning: string }[] = [
  { letter: 'B', name: 'Bound', meaning: 'a pod has it' },
  { letter: 'W', name: 'Warm', meaning: 'a node keeps it ready for its next pod' },
  { letter: 'Q', name: 'Quarantined', meaning: 'its last holder is not yet proven silent' },
  { letter: 'C', name: 'Conflict', meaning: 'another host uses it' },
  { letter: 'R', name: 'Retained', meaning: 'it is kept for a pod that comes back' },
  { letter: 'V', name: 'Virtual', meaning: 'a virtual address for which a pod speaks' },
  { letter: 'f', name: 'Free', meaning: 'it has no lease' },
  { letter: 'g', name: 'Gateway', meaning: 'it is the gateway of the pool' },
  { letter: 'r', name: 'Reserved', meaning: 'a ReservedIP keeps it back, or a load balancer has it' },
  { letter: 'w', name: 'Withheld', meaning: 'another pool hands it out' },
  { letter: '-', name: 'Not in the pool', meaning: 'the pool does not hand it out' },
]
export const stateOf = (letter: string) => STATES.find((s) => s.letter === letter)!

/** Writes a number, which may be that of a /64. */
export const amount = (n: number) => (n < 1e9 ? n.toLocaleString('en') : `over 10^${Math.floor(Math.log10(n))}`)

/** Expands runs such as 1-1g254f to one letter for each address. */
export function expand(runs: string): string {
  return runs.replace(/(\d+)(.)/g, (_, n: string, letter: string) => letter.repeat(Number(n)))
}

/** A cell of the map of a pool. Without a first address, the cells are the leases in their order. */
export class PoolMap {
  readonly leases = new Map<number, Lease>()
  /** The number of cells in each state. */
  readonly counts: Record<string, number> = {}
  /** All values that leases have had, to choose from. */
  readonly seen = { namespace: new Set<string>(), node: new Set<string>() }
  private ground: string
  private first: bigint | undefined
  private v6: boolean
  private sorted: Lease[] = []

  constructor(readonly name: string, grid: Grid, leases: Lease[]) {
    this.v6 = (grid.first ?? leases[0]?.address ?? '').includes(':')
    this.first = grid.first === undefined ? undefined : parse(grid.first)
    this.ground = expand(grid.runs)
    for (const [, n, letter] of grid.runs.matchAll(/(\d+)(.)/g)) this.count(letter, Number(n))
    if (this.first === undefined) this.order(leases)
    else leases.forEach((l) => this.put(l))
  }

  get size() { return this.first === undefined ? this.sorted.length : this.ground.length }
  get isDense() { return this.first !== undefined }

  private order(leases: Lease[]) {
    const keyed = leases.map((l) => ({ l, n: parse(l.address) }))
    this.sorted = keyed.sort((a, b) => (a.n < b.n ? -1 : 1)).map((k) => k.l)
    this.leases.forEach((_, i) => this.set(i, undefined))
    this.sorted.forEach((l, i) => this.set(i, l))
  }

  private count(letter: string, by: number) { this.counts[letter] = (this.counts[letter] ?? 0) + by }

  private set(i: number, lease: Lease | undefined) {
    const was = this.leases.get(i)?.state ?? this.ground[i]
    if (was) this.count(was, -1)
    if (lease) this.leases.set(i, lease)
    else this.leases.delete(i)
    const is = lease?.state ?? this.ground[i]
    if (is) this.count(is, 1)
    if (lease?.namespace) this.seen.namespace.add(lease.namespace)
    if (lease?.node) this.seen.node.add(lease.node)
  }

  /** Returns the cell of an address, or -1. */
  find(address: string): number {
    if (this.first === undefined) return this.sorted.findIndex((l) => l.address === address)
    const i = Number(parse(address) - this.first)
    return i >= 0 && i < this.size ? i : -1
  }

  put(lease: Lease) {
    const i = this.find(lease.address)
    if (i >= 0) this.set(i, lease)
    if (this.first !== undefined) return
    if (i >= 0) this.sorted[i] = lease
    else this.order([...this.sorted, lease])
  }

  remove(lease: Lease) {
    const i = this.find(lease.address)
    if (i < 0) return
    if (this.first === undefined) this.order(this.sorted.filter((_, j) => j !== i))
    else this.set(i, undefined)
  }

  address(i: number): string {
    return this.first === undefined ? this.sorted[i].address : format(this.first + BigInt(i), this.v6)
  }

  state(i: number): string { return this.leases.get(i)?.state ?? this.ground[i] }

  /** Says in a line what is in a cell. */
  line(i: number): string {
    const l = this.leases.get(i)
    const more = l ? [l.reason, l.pod && `${l.namespace}/${l.pod}`, l.node] : []
    return [this.address(i), stateOf(this.state(i)).name, ...more].filter(Boolean).join(' · ')
  }

  /** Returns for each cell whether the filter passes it, or undefined if it passes all. */
  mask(f: Filter): Uint8Array | undefined {
    if (!f.text && !f.namespace && !f.node && !f.states) return undefined
    const mask = new Uint8Array(this.size)
    const text = f.text.toLowerCase()
    for (let i = 0; i < mask.length; i++) {
      const l = this.leases.get(i)
      mask[i] = Number(
        (!f.states || f.states.includes(this.state(i))) &&
        (!f.namespace || l?.namespace === f.namespace) && (!f.node || l?.node === f.node) &&
        (!text || (l ? `${l.address} ${l.namespace}/${l.pod} ${l.node} ${l.mac} ${l.reason}`.toLowerCase() : this.address(i)).includes(text)))
    }
    return mask
  }
}
