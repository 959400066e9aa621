// Package pod finds out what a pod's interface is: its MAC, its kind, and the
// parent on the node that it hangs on, from which its segment follows.
//
// It only looks. Everything goes through netlink sockets that were opened in
// the namespace in question; no goroutine changes its own.
package pod
