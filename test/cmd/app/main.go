// SPDX-License-Identifier: Apache-2.0

// App is the only program in the images of the tests.
//
//	pause                       as the sandbox: wait for a signal and reap
//	app serve [-stubborn]       serve HTTP on 8080 and TCP on 7000
//	app get URL                 print what an HTTP server answers within 3 s
//
// The answer of both servers starts with the host name, which is the pod's name. So a client knows
// which pod speaks for an address.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

func main() {
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "pause" {
		args = []string{"pause"}
	}
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	switch verb := args[0]; {
	case verb == "pause":
		pause()
		return nil
	case verb == "serve":
		return serve(len(args) > 1 && args[1] == "-stubborn")
	case verb == "get" && len(args) == 2:
		return get(args[1])
	default:
		return fmt.Errorf("usage: app pause | serve [-stubborn] | get URL")
	}
}

func get(url string) error {
	client := http.Client{Timeout: 3 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}
