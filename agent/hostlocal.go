// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/diagnosis"
)

// hostLocal reads the files of host-local on this node, and writes those of a move. kubectl fenceline move-in runs it in
// the agent's container. The chart mounts the directory only while a network moves.
func hostLocal() *cobra.Command {
	mounted := ""
	c := &cobra.Command{
		Use: "host-local", Short: "Read the files of host-local, and write those of a move: JSON in, JSON out", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var request diagnosis.HostLocal
			if err := json.NewDecoder(c.InOrStdin()).Decode(&request); err != nil {
				return fmt.Errorf("read the request: %w", err)
			}
			if mounted == "" {
				return errors.New("the agents have no directory of host-local: install the chart with moveIn.hostLocalDir=" + request.DataDir)
			}
			if filepath.Clean(mounted) != filepath.Clean(request.DataDir) {
				return fmt.Errorf("the agents have %s, and the network keeps its files in %s: install the chart with this one as moveIn.hostLocalDir", mounted, request.DataDir)
			}
			booted, err := bootTime()
			if err != nil {
				return err
			}
			if request.Write {
				unlock, err := lockDirectory(mounted)
				if err != nil {
					return err
				}
				defer unlock()
			}
			files, err := request.Answer(booted)
			if err != nil {
				return err
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(files)
		},
	}
	c.Flags().StringVar(&mounted, "dir", os.Getenv("HOST_LOCAL_DIR"), "directory of host-local, at the same path as on the host")
	return c
}

// lockDirectory keeps other commands from writing files of a move: one that was killed may go on in its agent. The lock is
// of the directory itself, so it leaves no file, and host-local has its own ones below.
func lockDirectory(path string) (unlock func(), err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock the directory of host-local: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock %s, in which another command may write the files of a move at this time: %w: repeat the command", path, err)
	}
	return func() { dir.Close() }, nil
}

// bootTime is when the node booted, by the clock of today.
func bootTime() (time.Time, error) {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, fmt.Errorf("read the time since the boot: %w", err)
	}
	return time.Now().Add(-time.Duration(up.Nano())), nil
}
