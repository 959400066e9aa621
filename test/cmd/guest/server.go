// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/guest"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// dialCommand is the argument that makes this program the other end of one connection of a guest.
const dialCommand = "dial"

// dial carries one connection of a guest to an address of this machine.
func dial(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// serve starts an API server and leads the guest to it. The guest finds what controlplane.New needs.
func serve(ctx context.Context, g *guest.Guest) (stop func() error, err error) {
	defer must.Catch(&err)
	self := must.Value(os.Executable())
	s := must.Value(controlplane.Launch(ctx))
	file, access := filepath.Join(s.Config.Dir, "guest.kubeconfig"), s.Admin()
	access.Host, access.ServerName = "https://"+guest.ServerAddress, "kubernetes"
	root := must.Value(thirdparty.Root())
	if err := controlplane.WriteKubeconfig(access, file); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	g.Memory += moreMemory
	g.Dial = strings.Join([]string{self, dialCommand, strings.TrimPrefix(s.Config.URL(), "https://")}, " ")
	g.Files = append(g.Files, file, filepath.Join(root, "go.mod"), filepath.Join(root, "charts", "fenceline", "files", "crds"))
	g.Environment = append(g.Environment, controlplane.ServerVariable+"="+file)
	return s.Close, nil
}
