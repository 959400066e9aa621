// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fenceline/fenceline/test/thirdparty"
)

// Backup saves the content of etcd and returns the file, which is removed with the server.
func (s *Server) Backup(ctx context.Context) (string, error) {
	file := filepath.Join(s.Config.Dir, "backup.db")
	return file, runTool(ctx, "etcdctl", "--endpoints="+s.Config.etcdURL(s.Config.EtcdClientPort), "snapshot", "save", file)
}

// Restore replaces what etcd holds by a backup, with flags of etcdutl, as an operator does: everything
// is stopped meanwhile. It returns when the API server is ready.
func (s *Server) Restore(ctx context.Context, file string, flags ...string) error {
	for _, name := range []string{apiServer, etcd} {
		if err := s.stop(ctx, name); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(s.Config.etcdData()); err != nil {
		return fmt.Errorf("remove etcd's data: %w", err)
	}
	peer := s.Config.etcdURL(s.Config.EtcdPeerPort)
	args := append([]string{
		"snapshot", "restore", file, "--data-dir=" + s.Config.etcdData(),
		"--name=" + etcdName, "--initial-cluster=" + etcdName + "=" + peer, "--initial-advertise-peer-urls=" + peer,
	}, flags...)
	if err := runTool(ctx, "etcdutl", args...); err != nil {
		return err
	}
	return s.StartAPIServer(ctx)
}

// runTool runs a tool of etcd.
func runTool(ctx context.Context, name string, args ...string) error {
	builder, err := thirdparty.NewBuilder(os.Stderr)
	if err != nil {
		return err
	}
	dir, err := builder.Dir(ctx, thirdparty.EtcdTools)
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(dir, name), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("run %s %v: %w: %s", name, args, err, out)
	}
	return nil
}
