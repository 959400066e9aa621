// SPDX-License-Identifier: Apache-2.0

/** Returns an IPv4 or IPv6 address as a number. */
export function parse(text: string): bigint {
  if (!text.includes(':')) return text.split('.').reduce((n, octet) => n * 256n + BigInt(octet), 0n)
  const [head, tail] = text.split('::')
  const left = head ? head.split(':') : []
  const right = tail ? tail.split(':') : []
  const zeros = tail === undefined ? [] : Array(8 - left.length - right.length).fill('0')
  return [...left, ...zeros, ...right].reduce((n, group) => n * 65536n + BigInt('0x' + group), 0n)
}

/** Is the inverse of parse: canonical text (RFC 5952 for IPv6). */
export function format(n: bigint, v6: boolean): string {
  if (!v6) return [24n, 16n, 8n, 0n].map((shift) => (n >> shift) & 255n).join('.')
  const groups = Array.from({ length: 8 }, (_, i) => ((n >> BigInt(112 - 16 * i)) & 65535n).toString(16)).join(':')
  const runs = groups.match(/\b0(?::0)+\b/g) ?? []
  const longest = runs.reduce((a, b) => (b.length > a.length ? b : a), '')
  if (!longest) return groups
  const at = groups.search(new RegExp(`(?:^|:)${longest}(?:$|:)`))
  const before = groups.slice(0, at)
  const after = groups.slice(at).replace(new RegExp(`^:?${longest}:?`), '')
  return `${before}::${after}`
}
