// Package control holds the use cases of netmaster: each checks references, allocates and
// commits in one transaction. It has the view for reads and the leader's tasks. It
// guarantees that a refused request changes nothing, that two objects never share an
// address, tag, number or name, that references never dangle, and that reads see every
// earlier commit. It must not know wire formats or orchestrators, or keep truth outside the
// store. It is called by the API server, the controllers of Kubernetes and ACI, and
// cmd/netmaster. Start with Controller, then Committer and View (docs/design/control.md).
package control
