// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"os"
	"path/filepath"

	"github.com/fenceline/fenceline/test/thirdparty"
)

// Backup saves the content of the server's etcd and returns the file, which is removed with the server.
func (s *Server) Backup(ctx context.Context) (string, error) {
	tools, err := etcdTools(ctx)
	if err != nil {
		return "", err
	}
	file := filepath.Join(s.dir, "backup.db")
	return file, s.controlPlane.Backup(ctx, tools, file)
}

// Restore stops the server, replaces its content by a backup, and starts it again. The flags are those
// of etcdutl snapshot restore.
func (s *Server) Restore(ctx context.Context, file string, flags ...string) error {
	tools, err := etcdTools(ctx)
	if err != nil {
		return err
	}
	return s.controlPlane.Restore(ctx, tools, file, flags...)
}

func etcdTools(ctx context.Context) (string, error) {
	builder, err := thirdparty.NewBuilder(os.Stderr)
	if err != nil {
		return "", err
	}
	return builder.Dir(ctx, thirdparty.EtcdTools)
}
