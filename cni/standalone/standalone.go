// SPDX-License-Identifier: Apache-2.0

// Package standalone serves calls of the plugin without an agent and without a cluster. Allocation,
// configuration and data files are those of host-local, by its own packages, so that the type of an
// IPAM can be switched back and forth while containers live. On top of them, an ADD probes the
// addresses before it gives them.
package standalone

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// Call is one call of the runtime.
type Call struct {
	agentapi.Attachment
	// NetNS is the path of the container's network namespace.
	NetNS string
	// Args is CNI_ARGS.
	Args string
	// Conf is the network configuration from stdin.
	Conf []byte
	// Stderr gets one line for each finding that fails nothing.
	Stderr io.Writer
	// Host is the name of the machine, Boot the ID of its running boot, and Now the time.
	Host, Boot string
	Now        func() time.Time
	// Booted is a time before the first file of this boot, and zero if it is not known.
	Booted time.Time
}

// say writes a finding of an ADD.
func (c Call) say(format string, args ...any) {
	fmt.Fprintf(c.Stderr, "fenceline ADD of %s in container %s: %s\n", c.Interface, c.ContainerID, fmt.Sprintf(format, args...))
}

// Del frees the addresses of the attachment. It succeeds if there are none.
func Del(c Call) error {
	return c.with(func(s *store) error {
		return s.locked(func() error {
			if err := s.ReleaseByID(c.ContainerID, c.Interface); err != nil {
				return ioError("free the addresses of %s in %s: %w", c.ContainerID, s.dir, err)
			}
			return nil
		})
	})
}

// with calls do with the store, and closes it.
func (c Call) with(do func(*store) error) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// Check checks that the attachment has an address.
func Check(c Call) error {
	if _, err := c.load(); err != nil {
		return err
	}
	return c.with(func(s *store) error {
		if !s.FindByID(c.ContainerID, c.Interface) {
			return agentapi.Errorf(agentapi.CodeNotHeld, "find the addresses in %s: there is none of this container; start the container anew", s.dir)
		}
		return nil
	})
}

// GC frees the addresses of the network that no valid attachment of this machine holds.
func GC(c Call, valid []agentapi.Attachment) error {
	return c.with(func(s *store) error {
		return s.locked(func() error {
			return s.remove(func(e entry) bool { return e.host == c.Host && (!e.isOneOf(valid) || e.stale) })
		})
	})
}

// Status checks that an ADD would get an address.
func Status(c Call) error {
	conf, err := c.load()
	if err != nil {
		return err
	}
	err = c.with(func(s *store) error {
		return s.locked(func() error {
			taken, err := s.entries()
			if err != nil {
				return err
			}
			for i, set := range conf.Ranges {
				if !hasFree(set, taken) {
					return fmt.Errorf("look for a free address in %s: range set %d (%s) has none; "+moreAddresses, s.dir, i, set.String())
				}
			}
			return nil
		})
	})
	if err != nil {
		return agentapi.Errorf(agentapi.CodeNotAvailable, "%w", err)
	}
	return nil
}

func ioError(format string, args ...any) error {
	return agentapi.Errorf(agentapi.CodeIOFailure, format, args...)
}
