// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// Backup saves the content of etcd and returns the file, which is removed with the server.
func (s *Server) Backup(ctx context.Context) (string, error) {
	file := filepath.Join(s.Config.Dir, "backup.db")
	return file, runTool(ctx, "etcdctl", "--endpoints="+s.Config.etcdURL(s.Config.EtcdClientPort), "snapshot", "save", file)
}

// Restore replaces what etcd holds by a backup, with flags of etcdutl, as an operator does: everything
// is stopped meanwhile. It returns when the API server is ready.
func (s *Server) Restore(ctx context.Context, file string, flags ...string) (err error) {
	defer must.Catch(&err)
	for _, name := range []string{apiServer, etcd} {
		must.OK(s.stop(ctx, name))
	}
	must.Done(os.RemoveAll(s.Config.etcdData()), "remove etcd's data")
	peer := s.Config.etcdURL(s.Config.EtcdPeerPort)
	args := append([]string{
		"snapshot", "restore", file, "--data-dir=" + s.Config.etcdData(),
		"--name=" + etcdName, "--initial-cluster=" + etcdName + "=" + peer, "--initial-advertise-peer-urls=" + peer,
	}, flags...)
	must.OK(runTool(ctx, "etcdutl", args...))
	return s.StartAPIServer(ctx)
}

// runTool runs a tool of etcd.
func runTool(ctx context.Context, name string, args ...string) (err error) {
	defer must.Catch(&err)
	dir := must.Value(must.Value(thirdparty.NewBuilder(os.Stderr)).Dir(ctx, thirdparty.EtcdTools))
	out, err := exec.CommandContext(ctx, filepath.Join(dir, name), args...).CombinedOutput()
	must.That(err == nil, "run %s %v: %w: %s", name, args, err, out)
	return nil
}
