package holder

import (
	"errors"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// refusal turns a refusal of the rules into what the runtime is told: a code,
// the reason, and what to do.
func refusal(err error) error {
	var (
		noPool     *ipam.NoPoolError
		annotation *ipam.AnnotationError
		requested  *ipam.RequestedError
		answered   *agentapi.Error
	)
	switch {
	case errors.As(err, &answered):
		return err
	case errors.As(err, &noPool) && noPool.Exhausted():
		return agentapi.Errorf(agentapi.CodeExhausted, "%w; enlarge a pool or free addresses (kubectl get fllease)", err)
	case errors.As(err, &noPool):
		return agentapi.Errorf(agentapi.CodeNoPool, "%w; see kubectl get flpool", err)
	case errors.As(err, &annotation):
		return agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, "%w", err)
	case errors.As(err, &requested), errors.Is(err, lease.ErrTaken):
		return agentapi.Errorf(agentapi.CodeAddressRefused, "%w", err)
	case errors.Is(err, segment.ErrFenced), errors.Is(err, segment.ErrNoKey),
		errors.Is(err, lease.ErrNotMine), errors.Is(err, lease.ErrGone), errors.Is(err, lease.ErrState):
		// Another node was faster, or has not seen yet what this one has.
		return agentapi.Errorf(agentapi.CodeTryAgainLater, "%w; the next try chooses anew", err)
	case errors.Is(err, bpf.ErrNoDevice):
		return agentapi.Errorf(agentapi.CodeTryAgainLater,
			"%w; the sandbox or its parent went meanwhile, the runtime's next try makes a new one", err)
	}
	return unavailable(err)
}
