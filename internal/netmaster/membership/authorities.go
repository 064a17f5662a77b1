package membership

import (
	"sync"
	"sync/atomic"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// Authorities are the authority of clients, which all members share, and this member's
// certificates. It renews both authorities.
type Authorities struct {
	*local
	roster  *Roster
	clients atomic.Pointer[pki.Authority] // of who is no member; nil = this one does not have it yet
	signing sync.Mutex                    // of what changes, or signs by, clients
}
