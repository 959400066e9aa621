// SPDX-License-Identifier: Apache-2.0
import { useEffect, useRef, useState } from 'preact/hooks'
import { PoolMap, STATES } from './model'

const GLYPHS: Record<string, string> = { B: 'B', W: 'W', Q: 'Q', C: '!', R: 'R', V: 'V', g: 'G', w: '×', '-': '·' }

/** Draws a cell of each state once, because text is slow to draw. */
function sprites(pitch: number, scale: number): HTMLCanvasElement {
  const sheet = document.createElement('canvas')
  sheet.width = pitch * scale * STATES.length
  sheet.height = pitch * scale
  const c = sheet.getContext('2d')!
  const style = getComputedStyle(document.documentElement)
  const size = pitch - 2
  c.scale(scale, scale)
  c.font = `600 ${Math.round(pitch * 0.55)}px system-ui, sans-serif`
  c.textAlign = 'center'
  c.textBaseline = 'middle'
  STATES.forEach(({ letter }, i) => {
    const [fill, ink] = ['', '-ink'].map((part) => style.getPropertyValue(`--s-${letter === '-' ? 'out' : letter}${part}`))
    const x = i * pitch + 1
    c.fillStyle = fill
    c.beginPath()
    c.roundRect(x, 1, size, size, 3)
    c.fill()
    c.fillStyle = c.strokeStyle = ink
    if (letter === 'f') c.stroke()
    if (letter === 'r') {
      c.save()
      c.clip()
      for (let d = -size; d < size; d += 5) { c.moveTo(x + d, pitch); c.lineTo(x + d + size, 0) }
      c.stroke()
      c.restore()
    }
    c.fillText(GLYPHS[letter] ?? '', x + size / 2, pitch / 2 + 0.5)
  })
  return sheet
}

interface Props {
  map: PoolMap; mask?: Uint8Array; version: number; picked: number
  onPick: (i: number) => void; onPoint: (i: number) => void; onClose: () => void
}

/** The map of a pool: a canvas that shows the visible rows. */
export function GridView(p: Props) {
  const box = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const [room, setRoom] = useState({ width: 0, height: 0 })
  const [cursor, setCursor] = useState(0)
  const [dark, setDark] = useState(false)
  const [spoken, speak] = useState('')

  const longest = p.map.size ? p.map.address(p.map.size - 1).length : 0
  const margin = p.map.isDense ? Math.round(longest * 6.9 + 14) : 6
  const width = Math.max(room.width - margin, 100)
  const columns = 2 ** Math.max(2, Math.min(6, Math.floor(Math.log2(width / 15))))
  const pitch = Math.max(15, Math.min(24, Math.floor(width / columns)))
  const rows = Math.ceil(p.map.size / columns)
  const sheet = useRef<HTMLCanvasElement | null>(null)

  const shown = useRef(0) // the position that the canvas shows
  const draw = useRef((_isScroll?: boolean) => {})
  draw.current = (isScroll) => {
    const el = canvas.current, c = el?.getContext('2d'), scale = devicePixelRatio || 1
    if (!el || !c || !room.width || !sheet.current) return
    const [wide, high] = [Math.round(room.width * scale), Math.round(room.height * scale)]
    if (el.width !== wide || el.height !== high) {
      el.width = wide
      el.height = high
    }
    const top = Math.round(box.current!.scrollTop * scale) / scale
    const by = Math.round((top - shown.current) * scale)
    shown.current = top
    let from = 0, to = room.height // the part to draw
    if (isScroll && Math.abs(by) < high) { // the rest moves
      c.setTransform(1, 0, 0, 1, 0, 0)
      c.globalCompositeOperation = 'copy'
      c.drawImage(el, 0, -by)
      c.globalCompositeOperation = 'source-over'
      if (by > 0) from = (high - by) / scale
      else to = -by / scale
    }
    c.setTransform(scale, 0, 0, scale, 0, 0)
    c.save()
    c.beginPath()
    c.rect(0, from, room.width, to - from)
    c.clip()
    c.clearRect(0, from, room.width, to - from)
    const style = getComputedStyle(el)
    c.font = '11px ui-monospace, monospace'
    c.textBaseline = 'middle'
    const side = pitch * scale
    const index = Object.fromEntries(STATES.map((s, i) => [s.letter, i * side]))
    for (let row = Math.floor((top + from) / pitch); row < rows && row * pitch < top + to; row++) {
      const y = row * pitch - top
      c.globalAlpha = 1
      c.fillStyle = style.color
      if (p.map.isDense) c.fillText(p.map.address(row * columns), 2, y + pitch / 2 + 0.5)
      for (let i = row * columns; i < Math.min((row + 1) * columns, p.map.size); i++) {
        c.globalAlpha = p.mask && !p.mask[i] ? 0.14 : 1
        c.drawImage(sheet.current, index[p.map.state(i)], 0, side, side, margin + (i % columns) * pitch, y, pitch, pitch)
      }
    }
    c.globalAlpha = 1
    const ring = (i: number, width: number) => {
      if (i < 0 || i >= p.map.size) return
      c.lineWidth = width
      c.strokeStyle = style.getPropertyValue('--text')
      c.strokeRect(margin + (i % columns) * pitch, Math.floor(i / columns) * pitch - top, pitch, pitch)
    }
    ring(p.picked, 3)
    if (document.activeElement === box.current) ring(cursor, 1.5)
    c.restore()
  }

  useEffect(() => {
    const scheme = matchMedia('(prefers-color-scheme: dark)')
    const follow = () => setDark(scheme.matches)
    follow()
    scheme.addEventListener('change', follow)
    const seen = new ResizeObserver(() => setRoom({ width: box.current!.clientWidth, height: box.current!.clientHeight }))
    seen.observe(box.current!)
    return () => { seen.disconnect(); scheme.removeEventListener('change', follow) }
  }, [])
  useEffect(() => {
    box.current!.scrollTop = 0
    setCursor(0)
  }, [p.map.name])
  useEffect(() => { sheet.current = sprites(pitch, devicePixelRatio || 1) }, [pitch, dark])
  useEffect(() => draw.current())

  const at = (e: MouseEvent): number => {
    const r = canvas.current!.getBoundingClientRect()
    const column = Math.floor((e.clientX - r.left - margin) / pitch)
    const i = Math.floor((e.clientY - r.top + box.current!.scrollTop) / pitch) * columns + column
    return column < 0 || column >= columns || i >= p.map.size ? -1 : i
  }
  const move = (to: number) => {
    const i = Math.max(0, Math.min(p.map.size - 1, to))
    const y = Math.floor(i / columns) * pitch, el = box.current!
    if (y < el.scrollTop) el.scrollTop = y
    else if (y + pitch > el.scrollTop + room.height) el.scrollTop = y + pitch - room.height
    setCursor(i)
    p.onPoint(i)
    speak(p.map.line(i))
  }
  const key = (e: KeyboardEvent) => {
    const page = columns * Math.max(1, Math.floor(room.height / pitch) - 1)
    const steps: Record<string, number> = {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page,
      Home: -p.map.size, End: p.map.size,
    }
    if (e.key in steps) move(cursor + steps[e.key])
    else if (e.key === 'Enter' || e.key === ' ') p.onPick(cursor)
    else if (e.key === 'Escape') p.onClose()
    else return
    e.preventDefault()
  }

  return (
    <div class="grid" ref={box} tabIndex={0} role="application" aria-roledescription="map of addresses"
      aria-label={`Addresses of pool ${p.map.name}. The arrow keys move, Enter explains an address.`}
      onScroll={() => draw.current(true)} onKeyDown={key} onFocus={() => draw.current()} onBlur={() => draw.current()}
      onMouseMove={(e) => p.onPoint(at(e))} onMouseLeave={() => p.onPoint(-1)}
      onClick={(e) => { const i = at(e); if (i >= 0) { setCursor(i); p.onPick(i) } }}>
      <canvas ref={canvas} style={{ width: `${room.width}px`, height: `${room.height}px` }} />
      <div style={{ height: `${Math.max(0, rows * pitch - room.height)}px` }} />
      <span class="spoken" role="status">{spoken}</span>
    </div>
  )
}
