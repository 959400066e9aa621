package pod

import "errors"

var (
	// ErrNoNetNS says that there is nothing at the path of the namespace: the sandbox is gone.
	ErrNoNetNS = errors.New("network namespace does not exist")
	// ErrNotNetNS says that the path leads to something that is no network namespace.
	ErrNotNetNS = errors.New("not a network namespace")
	// ErrHostNetNS says that the path leads to the node's own namespace, where
	// nothing may be guarded.
	ErrHostNetNS = errors.New("the node's own network namespace")
	// ErrNoInterface says that the namespace holds no interface of that name (yet, or any more).
	ErrNoInterface = errors.New("interface does not exist")
	// ErrNoParent says that an interface of this kind hangs on no parent.
	ErrNoParent = errors.New("interface has no parent")
	// ErrForeignParent says that the parent is not in the node's namespace, so
	// that no observer of the agent is on it.
	ErrForeignParent = errors.New("parent is not in the node's network namespace")
)
