// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/diagnosis"
)

// diagnose asks the agent that runs on this node. A person runs it in the agent's container. The
// right to do that decides, so the agent listens on no port for it.
func diagnose() *cobra.Command {
	socket := ""
	c := &cobra.Command{
		Use: "diagnose", Short: "Ask the running agent about its node: JSON in, JSON out", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var request diagnosis.Request
			if err := json.NewDecoder(c.InOrStdin()).Decode(&request); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("read the request: %w", err)
			}
			var report diagnosis.Report
			if err := agentapi.NewClient(socket).Diagnose(c.Context(), request, &report); err != nil {
				return err
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(report)
		},
	}
	c.Flags().StringVar(&socket, "socket", agentapi.DefaultSocket, "unix socket of the agent")
	return c
}
