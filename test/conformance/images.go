// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/util/cert"

	"github.com/fenceline/fenceline/test/images"
)

// servers are the images of the network cases that one image stands for. It has agnhost of the same
// version and the commands that the cases run. Of glibc-dns-testing, the cases use the resolver of
// glibc and dig; of nginx, only that it runs and has an address.
var servers = []string{"agnhost", "glibc-dns-testing", "nginx"}

// BuildImages builds the images of the network cases in the directory out, and returns the paths of
// the tarballs. names are those of the binary (Suite.Images), userland is the directory of component
// Userland, pause the tarball of a program that waits.
func (s Suite) BuildImages(ctx context.Context, names []string, userland, out string) ([]string, error) {
	server, err := s.serverImage(userland)
	if err != nil {
		return nil, fmt.Errorf("build the images of the cases: %w", err)
	}
	for _, part := range servers {
		tags := named(names, part)
		if len(tags) == 0 {
			return nil, fmt.Errorf("build the images of the cases: the binary names no image %s", part)
		}
		server.Aliases = append(server.Aliases, tags...)
	}
	server.Name, server.Aliases = server.Aliases[0], server.Aliases[1:]
	path := filepath.Join(out, "e2e-server.tar")
	if err := images.Save(path, server); err != nil {
		return nil, err
	}
	tarballs := []string{path}
	for _, name := range named(names, "pause") {
		recipe := images.Pause("e2e-pause", name)
		tarball, err := recipe.Build(ctx, out)
		if err != nil {
			return nil, err
		}
		tarballs = append(tarballs, tarball)
	}
	if len(tarballs) != 2 {
		return nil, errors.New("build the images of the cases: the binary names no image pause")
	}
	return tarballs, nil
}

// serverImage is an image without a name.
func (s Suite) serverImage(userland string) (images.Image, error) {
	files, links, err := images.Tree(userland, "/.built", "/usr/share", "/var", "/etc/alternatives")
	if err != nil {
		return images.Image{}, err
	}
	if files["/agnhost"], err = os.ReadFile(filepath.Join(s.dir, "agnhost")); err != nil {
		return images.Image{}, err
	}
	if err := addCertificate(files); err != nil {
		return images.Image{}, err
	}
	files["/etc/nsswitch.conf"] = []byte("hosts: files dns\n")
	files["/etc/passwd"] = []byte("root:x:0:0:root:/:/bin/sh\n")
	files["/etc/group"] = []byte("root:x:0:\n")
	// What the packages' scripts would choose.
	maps.Copy(links, map[string]string{"/bin/nc": "nc.openbsd", "/usr/bin/awk": "mawk"})
	return images.Image{
		Entrypoint: []string{"/agnhost"}, Command: []string{"pause"},
		Path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", Files: files, Links: links,
	}, nil
}

// addCertificate adds the certificate that agnhost's server of TLS reads. Clients do not verify it.
func addCertificate(files map[string][]byte) error {
	var err error
	if files["/localhost.crt"], files["/localhost.key"], err = cert.GenerateSelfSignedCertKey("localhost", nil, nil); err != nil {
		return fmt.Errorf("sign a certificate of localhost: %w", err)
	}
	return nil
}

// named returns the names of one of our images, with all its tags.
func named(names []string, part string) []string {
	var found []string
	for _, name := range names {
		if strings.HasPrefix(name, prefix+"/"+part+":") {
			found = append(found, name)
		}
	}
	return found
}
