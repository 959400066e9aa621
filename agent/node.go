package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/agent/cniserver"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/install"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// backend adds the agent's own state to what the holders do.
func (a *agent) backend() cniserver.Backend { return &backend{Holders: a.holders, status: a.status} }

type backend struct {
	*holder.Holders
	status func(context.Context) error
}

// Status answers the runtime's question whether ADD can be served (CNI 1.1).
func (b *backend) Status(ctx context.Context) error {
	if err := b.status(ctx); err != nil {
		return agentapi.Errorf(agentapi.CodeNotAvailable, "the agent cannot serve ADD: %w", err)
	}
	return nil
}

// Add refuses early what would fail for every pod.
func (b *backend) Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if err := b.status(ctx); err != nil {
		return nil, agentapi.Errorf(agentapi.CodeTryAgainLater, "the agent cannot serve ADD yet: %w", err)
	}
	return b.Holders.Add(ctx, r)
}

// findLink finds a pod's interface and the parent that it hangs on.
func (a *agent) findLink(netns, ifname string) (holder.Link, error) {
	i, err := a.links.Find(netns, ifname)
	switch {
	case errors.Is(err, pod.ErrNoParent):
		return holder.Link{}, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig,
			"%w; Fenceline guards interfaces of the types macvlan and ipvlan: set one as the type of the plugin that calls it", err)
	case errors.Is(err, pod.ErrForeignParent):
		return holder.Link{}, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig,
			"%w; set the plugin's master to an interface of the node, and run the agent with hostNetwork", err)
	case errors.Is(err, pod.ErrNoNetNS), errors.Is(err, pod.ErrNoInterface):
		return holder.Link{}, agentapi.Errorf(agentapi.CodeTryAgainLater,
			"%w; the sandbox was changed or deleted meanwhile, the runtime's next try makes a new one", err)
	case err != nil:
		return holder.Link{}, err
	}
	return holder.Link{MAC: i.MAC, Parent: i.Parent.Name, ParentIndex: i.Parent.Index}, nil
}

// share is this agent's part of every pool: its index stands on its pod, the
// count of agents on the pools. Not knowing them costs collisions only.
func (a *agent) share() ipam.Share {
	self := &corev1.Pod{}
	if err := a.mgr.GetClient().Get(context.Background(), client.ObjectKey{Namespace: a.namespace, Name: a.pod}, self, client.UnsafeDisableDeepCopy); err != nil {
		return ipam.Share{}
	}
	index, err := strconv.Atoi(self.Annotations[v1alpha1.AnnotationAgentIndex])
	if err != nil {
		return ipam.Share{}
	}
	_, shares := a.agents()
	return ipam.Share{Index: index, Count: shares}
}

// agents is how many agents there are, and into how many shares they divide
// pools; 0 when the controller has not said yet.
func (a *agent) agents() (agents, shares int) {
	pools := &v1alpha1.IPPoolList{}
	if err := a.mgr.GetClient().List(context.Background(), pools, client.UnsafeDisableDeepCopy); err != nil {
		return 0, 0
	}
	for i := range pools.Items {
		status := &pools.Items[i].Status
		agents, shares = max(agents, int(status.Agents)), max(shares, int(status.Shares))
	}
	return agents, shares
}

// othersShare tells whether another node may be heard. Not knowing means yes:
// silence then proves nothing until somebody was heard (R2).
func (a *agent) othersShare() bool {
	agents, _ := a.agents()
	return agents != 1
}

// holdings are the addresses of this node's pods, whose claims are repeated.
func (a *agent) holdings() []segment.Holding {
	var held []segment.Holding
	modes := map[string]*v1alpha1.IPPool{}
	for e := range a.holders.Bound() {
		mac, err := net.ParseMAC(e.MAC)
		if err != nil {
			continue
		}
		for _, address := range e.Addresses {
			pool := a.poolOnce(modes, address.Pool)
			params := holder.ProbeParams(pool)
			held = append(held, segment.Holding{
				Parent: e.ParentIndex, Addr: address.Addr, Network: claim.Network(a.cluster, address.Network),
				Token: address.Token, Slot: e.Slot, MAC: mac, NetNS: e.NetNS, Interface: e.Interface,
				Mode: params.Mode, Ignore: params.Ignore,
			})
		}
	}
	return held
}

// poolOnce reads a pool from the cache. One that is gone is as strict as any.
func (a *agent) poolOnce(seen map[string]*v1alpha1.IPPool, name string) *v1alpha1.IPPool {
	if pool, ok := seen[name]; ok {
		return pool
	}
	pool := &v1alpha1.IPPool{}
	if err := a.mgr.GetClient().Get(context.Background(), client.ObjectKey{Name: name}, pool); err != nil {
		pool = &v1alpha1.IPPool{}
	}
	seen[name] = pool
	return pool
}

// installConflist makes the node's network known to the runtime, once ADD can
// be served. It is written again whenever it has changed or gone. A directory
// that refuses it ends no agent: the pods that are there need theirs.
func (a *agent) installConflist(ctx context.Context) error {
	if a.conflist == "" {
		<-ctx.Done()
		return nil
	}
	content, err := os.ReadFile(a.conflist)
	if err != nil {
		return fmt.Errorf("read the network configuration: %w", err)
	}
	told := ""
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		if !a.serves(ctx) {
			return false, nil
		}
		_, err := install.Conflist(a.confDir, filepath.Base(a.conflist), content)
		if err == nil || errors.Is(err, install.ErrNotConflist) {
			told = ""
			return false, err
		}
		// The same sentence each second would bury the others.
		if why := err.Error(); why != told {
			told = why
			a.log.Error(err, "the runtime does not know the network yet; it is tried again")
		}
		return false, nil
	})
}
