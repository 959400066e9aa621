// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Backup saves the content of etcd to a file, with etcdctl of a directory.
func (p *ControlPlane) Backup(ctx context.Context, tools, file string) error {
	return runTool(ctx, filepath.Join(tools, "etcdctl"), "--endpoints="+p.Config.etcdURL(p.Config.EtcdClientPort), "snapshot", "save", file)
}

// Restore replaces what etcd holds by a backup, with etcdutl of a directory and
// flags of its own, as an operator does: everything is stopped meanwhile. It
// returns when the API server is ready.
func (p *ControlPlane) Restore(ctx context.Context, tools, file string, flags ...string) error {
	for _, name := range []string{apiServer, etcd} {
		if err := p.stop(ctx, name); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(p.Config.etcdData()); err != nil {
		return fmt.Errorf("remove etcd's data: %w", err)
	}
	peer := p.Config.etcdURL(p.Config.EtcdPeerPort)
	args := append([]string{
		"snapshot", "restore", file, "--data-dir=" + p.Config.etcdData(),
		"--name=" + etcdName, "--initial-cluster=" + etcdName + "=" + peer, "--initial-advertise-peer-urls=" + peer,
	}, flags...)
	if err := runTool(ctx, filepath.Join(tools, "etcdutl"), args...); err != nil {
		return err
	}
	return p.StartAPIServer(ctx)
}

func runTool(ctx context.Context, tool string, args ...string) error {
	if out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("run %s %v: %w: %s", filepath.Base(tool), args, err, out)
	}
	return nil
}
