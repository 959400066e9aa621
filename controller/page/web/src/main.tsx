// SPDX-License-Identifier: Apache-2.0
import { render } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import './style.css'
import { GridView } from './grid'
import { amount, Filter, Happening, Lease, Pool, STATES, stateOf } from './model'
import { Session } from './session'

const SHOWN = 40 // addresses in the list of those that match
const NO_FILTER: Filter = { text: '', namespace: '', node: '', states: '' }

function Login(p: { why: string; onToken: (token: string) => void }) {
  const input = useRef<HTMLInputElement>(null)
  return (
    <main class="login">
      <h1>Fenceline</h1>
      <form onSubmit={(e) => { e.preventDefault(); const t = input.current!.value.trim(); if (t) p.onToken(t) }}>
        <label for="token">Token of an account that may list IPLeases, IPPools and ReservedIPs</label>
        <input id="token" ref={input} type="password" autocomplete="off" spellcheck={false} />
        <button>Open</button>
      </form>
      {p.why && <p role="alert" class="bad">{p.why}</p>}
      <p>The page keeps the token in memory only. <code>kubectl create token NAME</code> prints one.</p>
    </main>
  )
}

function PoolButton(p: { pool: Pool; isOpen: boolean; onOpen: () => void }) {
  const n = p.pool.counts
  const bad = (p.pool.conditions ?? []).filter((c) => (c.type === 'Ready') !== (c.status === 'True'))
  return (
    <li>
      <button class="pool" aria-current={p.isOpen} onClick={p.onOpen}>
        <b>{p.pool.name}</b> <span class="dim">{p.pool.subnet}{p.pool.network && ` on ${p.pool.network}`}</span>
        <span class="bar" aria-hidden="true">
          {['B', 'W', 'Q', 'R'].map((s) => n[s] > 0 && <i class={`s-${s}`} style={{ flexGrow: n[s] }} />)}
          <i style={{ flexGrow: Math.max(n.free, 0) }} />
        </span>
        <span class="dim">{amount(n.used)} used, {amount(n.free)} free</span>
        {bad.map((c) => <span class="bad" title={c.message}>{c.type === 'Ready' ? c.reason : c.type}</span>)}
      </button>
    </li>
  )
}

function Explanation(p: { session: Session; lease?: Lease; line: string; letter: string; onClose: () => void }) {
  const [said, setSaid] = useState<{ sentences: string[]; record?: object }>({ sentences: [] })
  useEffect(() => {
    let isCurrent = true
    if (!p.lease) setSaid({ sentences: [`${stateOf(p.letter).name}: ${stateOf(p.letter).meaning}.`] })
    else if (p.lease.said) setSaid({ sentences: ['It is a virtual address.', p.lease.said] })
    else p.session.explain(p.lease.name).then((s) => isCurrent && setSaid(s), (e) => isCurrent && setSaid({ sentences: [`No answer: ${e.message}.`] }))
    return () => { isCurrent = false }
  }, [p.lease, p.line, p.letter, p.session])
  return (
    <section class="explanation" aria-labelledby="explained" onKeyDown={(e) => e.key === 'Escape' && p.onClose()}>
      <h2 id="explained"><i class={`chip s-${p.letter === '-' ? 'out' : p.letter}`} />{p.line.split(' · ')[0]}</h2>
      <button class="close" onClick={p.onClose} aria-label="Close the explanation">×</button>
      <div aria-live="polite">{said.sentences.map((s) => <p>{s}</p>)}</div>
      {said.record && <details><summary>Record</summary><pre tabIndex={0}>{JSON.stringify(said.record, null, 2)}</pre></details>}
    </section>
  )
}

const when = (t: Date) => (t.toDateString() === new Date().toDateString() ? '' : `${t.toLocaleDateString()} `) + t.toLocaleTimeString()

function Feed(p: { feed: Happening[]; onShow: (h: Happening) => void }) {
  return (
    <section class="feed" aria-labelledby="feed">
      <h2 id="feed">Feed</h2>
      {p.feed.length === 0 && <p class="dim">No conflict, reclaim or fence yet.</p>}
      <ol tabIndex={0} aria-label="Conflicts, reclaims and fences, the newest first">
        {[...p.feed].reverse().map((h) => (
          <li key={h.at + h.lease + h.kind}>
            <button onClick={() => p.onShow(h)}>
              <b class={h.kind}>{h.kind}</b> <b>{h.address}</b> <time class="dim" dateTime={h.at}>{when(new Date(h.at))}</time>
              <span>{h.text}</span>
            </button>
          </li>
        ))}
      </ol>
    </section>
  )
}

function Select(p: { label: string; value: string; values: string[]; onPick: (v: string) => void }) {
  return (
    <label>{p.label} <select value={p.value} onChange={(e) => p.onPick(e.currentTarget.value)}>
      <option value="">all</option>
      {p.values.map((v) => <option value={v}>{v}</option>)}
    </select></label>
  )
}

function Page(p: { token: string; onRefused: (why: string) => void }) {
  const [version, setVersion] = useState(0)
  const [session, setSession] = useState<Session>()
  const [filter, setFilter] = useState(NO_FILTER)
  const [picked, setPicked] = useState('') // an address
  const [pointed, setPointed] = useState(-1)
  useEffect(() => {
    const s = new Session(p.token, () => { setVersion((v) => v + 1); if (s.refusal) p.onRefused(s.refusal) })
    setSession(s)
    return () => s.close()
  }, [p.token])
  const map = session?.map
  const mask = useMemo(() => map?.mask(filter), [map, filter, version])
  const counts = map?.counts ?? {}
  const matching = useMemo(() => mask && [...mask.keys()].filter((i) => mask[i]), [mask])
  if (!session) return null
  const at = map && picked ? map.find(picked) : -1
  const open = (name: string) => { setPicked(''); setFilter(NO_FILTER); return session.open(name) }
  const show = (h: Happening) => (map?.name === h.pool ? Promise.resolve() : open(h.pool)).then(() => setPicked(h.address)).catch(() => {})
  const pools = [...session.pools.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
  const toggle = (s: string) => setFilter({ ...filter, states: filter.states.includes(s) ? filter.states.replace(s, '') : filter.states + s })
  return (
    <div class="page">
      <header>
        <h1>Fenceline</h1>
        <p role="status" class={session.isOnline ? 'live' : 'bad'}>{session.isOnline ? 'live' : 'no answer from the controller; trying again'}</p>
      </header>
      <nav aria-label="Pools"><ul>{pools.map((pool) => (
        <PoolButton key={pool.name} pool={pool} isOpen={pool.name === map?.name} onOpen={() => void open(pool.name).catch(() => {})} />))}</ul></nav>
      <main aria-label="Addresses">
        {map ? <>
          <form class="filters" role="search" onSubmit={(e) => { e.preventDefault(); if (matching?.length) setPicked(map.address(matching[0])) }}>
            <label>Search <input type="search" value={filter.text} placeholder="address, pod, MAC, reason"
              onInput={(e) => setFilter({ ...filter, text: e.currentTarget.value })} /></label>
            <Select label="Namespace" value={filter.namespace} values={[...map.seen.namespace].sort()} onPick={(namespace) => setFilter({ ...filter, namespace })} />
            <Select label="Node" value={filter.node} values={[...map.seen.node].sort()} onPick={(node) => setFilter({ ...filter, node })} />
            {matching && <output>{amount(matching.length)} match</output>}
          </form>
          <div class="key" role="group" aria-label="Show only these states">
            {STATES.filter((s) => counts[s.letter] || filter.states.includes(s.letter)).map((s) => (
              <button aria-pressed={filter.states.includes(s.letter)} title={s.meaning} onClick={() => toggle(s.letter)}>
                <i class={`chip s-${s.letter === '-' ? 'out' : s.letter}`} />{s.name} <span class="dim">{amount(counts[s.letter] ?? 0)}</span>
              </button>))}
          </div>
          <p class="pointed">{pointed >= 0 && pointed < map.size ? map.line(pointed)
            : map.isDense ? `${map.name}: ${amount(map.size)} addresses` : `${map.name}: too large for a grid, ${map.size} leases`}</p>
          <GridView map={map} mask={mask} version={version} picked={at} onPoint={setPointed}
            onPick={(i) => setPicked(map.address(i))} onClose={() => setPicked('')} />
          {matching && <ul class="matches" aria-label="The first addresses that match">{matching.slice(0, SHOWN).map((i) => (
            <li key={i}><button onClick={() => setPicked(map.address(i))}>{map.line(i)}</button></li>))}</ul>}
        </> : <p class="dim">{session.isOnline ? 'There is no pool yet.' : 'Reading…'}</p>}
      </main>
      <aside aria-label="Explanation and feed">
        {map && at >= 0 && <Explanation session={session} lease={map.leases.get(at)} letter={map.state(at)} line={map.line(at)} onClose={() => setPicked('')} />}
        <Feed feed={session.feed} onShow={show} />
      </aside>
    </div>
  )
}

function App() {
  // The token stands in the fragment, which no browser sends to a server. It does not stay in the history.
  const [token, setToken] = useState(() => new URLSearchParams(location.hash.slice(1)).get('token') ?? '')
  const [why, setWhy] = useState('')
  useEffect(() => { if (location.hash) history.replaceState(null, '', location.pathname) }, [])
  if (!token) return <Login why={why} onToken={(t) => { setWhy(''); setToken(t) }} />
  return <Page token={token} onRefused={(reason) => { setWhy(reason); setToken('') }} />
}

render(<App />, document.body)
