package apiserver

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// storeHandlers answers for the store: what it is, backups, adoption.
type storeHandlers struct {
	*serverContext
	router *router
}

// handleStore registers what is about the store as a whole.
func (s *server) handleStore() {
	s.router.handle("GET", "/api/v1/store", access.View|access.WithinScope, nil, s.store.storeInfo) // who logs in keeps the token by the store's id
	s.router.handle("POST", "/api/v1/store/adopt", access.AdminOnly, nil, s.store.adoptStore)
	handleRead(s.router, "POST", "/api/v1/release", access.AdminOnly, readBody[api.OwnershipRelease], ofRelease, s.store.release)
	s.router.handleStream("GET", "/api/v1/backup", access.AdminOnly, nil, s.store.backup).verb = verbChange // the whole store, also what lets people in: recorded too
}

// adoptRequest is the body of a request that says all by its path.
type adoptRequest struct{}

func storeInfo(i control.Incarnation, rev int64) api.StoreInfo {
	return api.StoreInfo{ID: i.ID, Epoch: i.Generation, Since: i.Since, Revision: rev, Replaces: i.Replaces}
}

func (s *storeHandlers) storeInfo(_ http.ResponseWriter, r *request) (any, error) {
	i, rev, err := s.control.Store.Identity(r.Context())
	return storeInfo(i, int64(rev)), err
}

func (s *storeHandlers) adoptStore(w http.ResponseWriter, r *request) (any, error) {
	if _, err := decode(w, r, &adoptRequest{}); err != nil {
		return nil, err
	}
	keep, err := boolQuery(r, "keepTokens")
	if err != nil {
		return nil, err
	}
	i, ended, rev, err := s.control.Store.Adopt(r.Context(), r.actor, keep)
	r.committed(rev)
	info := storeInfo(i, int64(rev))
	info.TokensEnded = ended
	return info, err
}

// backupWrite bounds one write of a backup to its reader.
const backupWrite = time.Minute

// backup streams a copy of the store, however long that takes. A broken copy has no hash at
// its end, and the connection is cut, so that it is not taken for a whole one.
func (s *storeHandlers) backup(w http.ResponseWriter, r *request) {
	begin := time.Now()
	sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		s.router.requests.WithLabelValues("/api/v1/backup", r.Method, strconv.Itoa(sw.status)).Inc()
	}()
	snap, err := s.control.Store.Backup(r.Context())
	if err != nil {
		s.router.refuse(sw, r.Request, err)
		return
	}
	defer snap.Close()
	sw.Header().Set("Content-Type", "application/octet-stream")
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // the request has been read; not every connection has deadlines
	var sent int64
	for {
		_ = rc.SetWriteDeadline(time.Now().Add(backupWrite))
		n, err := io.CopyN(sw, snap, 1<<20)
		sent += n
		switch {
		case err == io.EOF: //nolint:errorlint // CopyN returns it as it is
			s.log.Info("the store was backed up", "client", r.RemoteAddr, "bytes", sent, "took", time.Since(begin))
			return
		case err != nil:
			s.log.Warn("a backup of the store was interrupted", "client", r.RemoteAddr, "bytes", sent, "error", err)
			_ = rc.SetWriteDeadline(time.Unix(1, 0)) // cuts the connection: what ends in order counts as whole
			return
		}
	}
}
