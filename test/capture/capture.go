// SPDX-License-Identifier: Apache-2.0

// Package capture records the frames that enter a switch. From them a test judges which MAC spoke for
// an address, and when.
package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/network"
)

const (
	// snapLength is the length that is kept of each frame: enough for every decoded header.
	snapLength = 160
	// bufferSize is enough for some ten thousand frames that a busy machine has not read yet.
	bufferSize = 32 << 20
)

// Capture is a running capture. Its methods are safe for concurrent use.
type Capture struct {
	sw     *network.Namespace
	bridge string
	file   *os.File
	done   chan struct{}
	stop   sync.Once
	ports  map[int]string // by ifindex; the receiving goroutine's own

	mu      sync.Mutex
	frames  []Frame
	arrived chan struct{} // closed and replaced when a frame has been added
	err     error
}

// Start records the frames that enter the bridge, by its present and its later ports.
func Start(sw *network.Namespace, bridge string) (*Capture, error) {
	c := &Capture{sw: sw, bridge: bridge, done: make(chan struct{}), arrived: make(chan struct{}), ports: map[int]string{}}
	fd, err := sw.PacketSocket(unix.ETH_P_ALL, unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("capture on %s: %w", bridge, err)
	}
	c.file = os.NewFile(uintptr(fd), "packet")
	for option, value := range map[int]int{unix.SO_RCVBUFFORCE: bufferSize, unix.SO_TIMESTAMPNS: 1} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, value); err != nil {
			return nil, errors.Join(fmt.Errorf("capture on %s: set packet socket option %d: %w", bridge, option, err), c.file.Close())
		}
	}
	go c.run()
	return c, nil
}

// Stop ends the capture and returns all frames in the order of their arrival. It returns an error if
// the kernel dropped a frame, because an incomplete capture proves nothing.
func (c *Capture) Stop() ([]Frame, error) {
	c.stop.Do(func() {
		c.fail(c.file.SetReadDeadline(time.Now()))
		<-c.done
		c.fail(c.file.Close())
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames, c.err
}

// Frames returns the frames that have arrived so far.
func (c *Capture) Frames() []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames[:len(c.frames):len(c.frames)]
}

// Wait returns the first frame, from the start of the capture on, that matches.
func (c *Capture) Wait(ctx context.Context, match func(Frame) bool) (Frame, error) {
	for seen := 0; ; {
		frames := c.Frames()
		for _, f := range frames[seen:] {
			if match(f) {
				return f, nil
			}
		}
		seen = len(frames)
		if err := c.WaitMore(ctx, seen); err != nil {
			return Frame{}, err
		}
	}
}

// WaitMore waits until more than n frames have arrived.
func (c *Capture) WaitMore(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		count, arrived := len(c.frames), c.arrived
		c.mu.Unlock()
		if count > n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for a frame: %w", ctx.Err())
		case <-c.done:
			return errors.New("wait for a frame: the capture has ended")
		case <-arrived:
		}
	}
}

func (c *Capture) run() {
	defer close(c.done)
	conn, err := c.file.SyscallConn()
	if err == nil {
		err = conn.Read(func(fd uintptr) bool {
			c.receiveAll(int(fd))
			return false // wait for more, until the deadline that Stop sets
		})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = conn.Control(func(fd uintptr) {
			c.receiveAll(int(fd)) // what arrived before Stop
			c.fail(lost(int(fd)))
		})
	}
	c.fail(err)
}

// receiveAll reads frames until the socket has no more.
func (c *Capture) receiveAll(fd int) {
	data, control := make([]byte, snapLength), make([]byte, 128)
	for {
		n, controlLen, _, from, err := unix.Recvmsg(fd, data, control, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN): // a test has pulled the cable
			continue
		case err != nil:
			c.fail(fmt.Errorf("receive a frame: %w", err))
			return
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if !ok || link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		at, err := timestamp(control[:controlLen])
		if err != nil {
			c.fail(err)
			return
		}
		c.add(link.Ifindex, at, append([]byte(nil), data[:n]...))
	}
}

func (c *Capture) add(ifindex int, at time.Time, data []byte) {
	port, err := c.port(ifindex)
	if err != nil {
		c.fail(err)
		return
	}
	if port == "" {
		return
	}
	f := Decode(data)
	f.Time, f.Port = at, port
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames = append(c.frames, f)
	close(c.arrived)
	c.arrived = make(chan struct{})
}

// port returns the name of the port, or "" if the interface is not a port of the bridge.
func (c *Capture) port(ifindex int) (string, error) {
	if name, ok := c.ports[ifindex]; ok {
		return name, nil
	}
	ports, err := c.sw.Ports(c.bridge)
	if err == nil {
		c.ports[ifindex] = ports[ifindex]
	}
	return ports[ifindex], err
}

// fail keeps the first error.
func (c *Capture) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && err != nil {
		c.err = fmt.Errorf("capture on %s: %w", c.bridge, err)
	}
}

func timestamp(control []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, fmt.Errorf("read a frame's time: %w", err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			ts := *(*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			return time.Unix(ts.Unix()), nil
		}
	}
	return time.Time{}, errors.New("a frame came without its time")
}

func lost(fd int) error {
	stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return fmt.Errorf("ask for lost frames: %w", err)
	}
	if stats.Drops > 0 {
		return fmt.Errorf("%d of %d frames were lost", stats.Drops, stats.Packets)
	}
	return nil
}
