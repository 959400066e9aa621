// Package journal is what a node agent remembers across crashes: one file for
// each pod interface that was or is being given addresses. Nothing is lost
// that Put or Remove has returned from, however the agent ends. The end of the
// machine may lose the last entries: their pods have ended with it.
package journal
