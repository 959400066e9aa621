// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/internal/version"
)

// versions are the builds that work together. Images counts the agents of each image.
type versions struct {
	Client     string         `json:"client"`
	Server     string         `json:"server"`
	Controller map[string]int `json:"controller"`
	Agents     map[string]int `json:"agents"`
}

func (s *session) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the versions of this command, the API server, the controller and the agents", Args: cobra.NoArgs,
		RunE: answers(s, readVersions, func(w paper, v versions) {
			fmt.Fprintf(w, "Client:      %s\nAPI server:  %s\n", v.Client, v.Server)
			for _, part := range []struct {
				name   string
				images map[string]int
			}{{"Controller:", v.Controller}, {"Agents:", v.Agents}} {
				for image, n := range part.images {
					fmt.Fprintf(w, "%-12s %s (%d)\n", part.name, image, n)
				}
			}
		}),
	}
}

func readVersions(ctx context.Context, c *cluster.Cluster, _ []string) (versions, error) {
	v := versions{Client: version.String()}
	server, err := c.Kube.Discovery().ServerVersion()
	if err != nil {
		return v, fmt.Errorf("ask the API server for its version: %w", err)
	}
	v.Server = server.GitVersion
	for component, images := range map[string]*map[string]int{"controller": &v.Controller, "agent": &v.Agents} {
		*images = map[string]int{}
		pods, err := c.Kube.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{
			LabelSelector: labels.SelectorFromSet(labels.Set(agents.Labels(component))).String(),
		})
		if err = c.MayLack("pods of namespace "+c.Namespace, err); err != nil {
			return v, fmt.Errorf("list the pods of the %s: %w", component, err)
		}
		for i := range pods.Items {
			image := pods.Items[i].Spec.Containers[0].Image
			(*images)[image[strings.LastIndex(image, "/")+1:]]++ // without its registry
		}
	}
	return v, nil
}
