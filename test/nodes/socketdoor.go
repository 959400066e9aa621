// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/must"
)

// socketDoor is the proxy through which the plugin calls the agent.
type socketDoor struct {
	listener *net.UnixListener
	agent    string // the agent's own socket
	see      func(Moment) error

	mu   sync.Mutex
	open map[*passage]bool
}

// passage is one call of the plugin.
type passage struct {
	plugin, agent net.Conn
	pid           int // of the plugin
}

func openSocketDoor(path, agent string, see func(Moment) error) (*socketDoor, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the plugin: %w", err)
	}
	d := &socketDoor{listener: l, agent: agent, see: see, open: map[*passage]bool{}}
	go d.serve()
	return d, nil
}

func (d *socketDoor) serve() {
	for {
		c, err := d.listener.AcceptUnix()
		if err != nil {
			return // closed
		}
		pid, err := peer(c)
		if err != nil {
			c.Close()
			continue
		}
		go d.pass(&passage{plugin: c, pid: pid})
	}
}

// pass carries one call and its answer. If one side closes, the other side is closed too.
func (d *socketDoor) pass(p *passage) {
	d.mu.Lock()
	d.open[p] = true
	d.mu.Unlock()
	defer d.close(p)
	request := make([]byte, 64<<10)
	n, err := p.plugin.Read(request)
	if err != nil {
		return
	}
	called, answered := momentsOf(request[:n])
	if d.see(called) != nil {
		return
	}
	agent, err := net.Dial("unix", d.agent)
	if err != nil {
		return
	}
	d.mu.Lock()
	p.agent = agent
	d.mu.Unlock()
	if _, err := agent.Write(request[:n]); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(agent, p.plugin)
		agent.Close()
	}()
	answer := make([]byte, 64<<10)
	n, err = agent.Read(answer)
	if err != nil || d.see(answered) != nil {
		return
	}
	if _, err := p.plugin.Write(answer[:n]); err == nil {
		_, _ = io.Copy(p.plugin, agent)
	}
}

// momentsOf returns the moments of a call, which its first line tells.
func momentsOf(request []byte) (called, answered Moment) {
	for path, moments := range map[string][2]Moment{
		agentapi.PathAdd: {AddCalled, AddAnswered}, agentapi.PathDel: {DelCalled, DelAnswered},
	} {
		if bytes.HasPrefix(request, []byte("POST "+path+" ")) {
			return moments[0], moments[1]
		}
	}
	return "", ""
}

// closeAll closes every connection between the plugin and the agent.
func (d *socketDoor) closeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.open {
		p.plugin.Close()
		if p.agent != nil {
			p.agent.Close()
		}
	}
}

// killPlugins kills every plugin that waits for an answer.
func (d *socketDoor) killPlugins() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for p := range d.open {
		if p.pid == os.Getpid() {
			continue // a call of the test itself
		}
		if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("kill plugin %d: %w", p.pid, err))
		}
	}
	return errors.Join(errs...)
}

func (d *socketDoor) close(p *passage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, p)
	p.plugin.Close()
	if p.agent != nil {
		p.agent.Close()
	}
}

// peer returns the process at the other end of a connection.
func peer(c *net.UnixConn) (pid int, err error) {
	defer must.Catch(&err)
	raw := must.Value(c.SyscallConn())
	var credentials *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	must.OK(errors.Join(err, failed))
	return int(credentials.Pid), nil
}
