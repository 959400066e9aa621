// SPDX-License-Identifier: Apache-2.0
import { describe, expect, test } from 'vitest'
import { format, parse } from './address'
import { expand, Lease, PoolMap } from './model'

const lease = (address: string, state = 'B', more: Partial<Lease> = {}): Lease => ({ name: address, pool: 'p', address, state, ...more })
const none = { text: '', namespace: '', node: '', states: '' }

describe('addresses', () => {
  for (const text of ['0.0.0.0', '10.20.0.14', '255.255.255.255', '::', '::1', 'fd00::', 'fd00::1:0', 'fd00:20::1:ffff', '1:2:3:4:5:6:7:8',
    '1:0:2::3', '1:0:0:2::3', '1::2:0:0:3', 'fd00:0:1:0:1:0:1:0', 'f00::f00:0:0:1'])
    test(`${text} is read and written`, () => expect(format(parse(text), text.includes(':'))).toBe(text))
  test('they are numbers', () => expect(parse('10.0.1.0') - parse('10.0.0.255')).toBe(1n))
})

test('runs are expanded', () => expect(expand('1-1g12f2x')).toBe('-gffffffffffffxx'))

describe('a map', () => {
  const map = () => new PoolMap('p', { first: '10.0.0.0', size: 8, runs: '1-6f1-' },
    [lease('10.0.0.2', 'B', { namespace: 'shop', pod: 'Web-1', node: 'n1' }), lease('10.0.0.3', 'W', { node: 'n2' })])
  test('shows leases above the ground', () => {
    const m = map()
    m.put(lease('10.0.0.4', 'Q'))
    m.remove(lease('10.0.0.3'))
    m.put(lease('10.9.0.1')) // is outside
    expect([...Array(8).keys()].map((i) => m.state(i)).join('')).toBe('-fBfQff-')
    expect(m.counts).toEqual({ '-': 2, f: 4, B: 1, W: 0, Q: 1 })
    expect(m.line(2)).toBe('10.0.0.2 · Bound · shop/Web-1 · n1')
    expect(m.line(1)).toBe('10.0.0.1 · Free')
  })
  test('shows who speaks for a virtual address, and that nobody does', () => {
    const m = map()
    const virtual = lease('10.0.0.5', 'V', { namespace: 'shop', pod: 'haproxy-1', node: 'n2', said: 'Pod shop/haproxy-1 speaks for it.' })
    m.put(virtual)
    expect(m.line(5)).toBe('10.0.0.5 · Virtual · shop/haproxy-1 · n2')
    m.put({ ...virtual, pod: 'haproxy-2' })
    expect(m.line(5)).toBe('10.0.0.5 · Virtual · shop/haproxy-2 · n2')
    m.remove(virtual)
    expect(m.line(5)).toBe('10.0.0.5 · Free')
  })
  for (const [what, filter, want] of [
    ['a text, in any case', { text: 'web-1' }, '00100000'], ['an address', { text: '10.0.0.3' }, '00010000'],
    ['a namespace', { namespace: 'shop' }, '00100000'], ['a node', { node: 'n2' }, '00010000'],
    ['states', { states: 'fW' }, '01011110'], ['two of them', { states: 'BW', node: 'n1' }, '00100000'],
  ] as const) test(`is filtered by ${what}`, () => expect(map().mask({ ...none, ...filter })?.join('')).toBe(want))
  test('has no mask without a filter', () => expect(map().mask(none)).toBeUndefined())
  test('has the values of its leases', () => expect([...map().seen.node]).toEqual(['n1', 'n2']))
})

test('a map without a grid has its leases in the order of their addresses', () => {
  const m = new PoolMap('p', { size: 0, runs: '' }, [lease('fd00::10'), lease('fd00::9')])
  m.put(lease('fd00::f', 'W'))
  m.put(lease('fd00::9', 'Q'))
  m.remove(lease('fd00::10'))
  expect([0, 1].map((i) => m.line(i))).toEqual(['fd00::9 · Quarantined', 'fd00::f · Warm'])
  expect(m.counts).toEqual({ B: 0, Q: 1, W: 1 })
  expect([m.size, m.find('fd00::f'), m.find('fd00::10')]).toEqual([2, 1, -1])
})
