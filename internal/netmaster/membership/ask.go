package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

const (
	// dialTime is how long an address may take to answer at all.
	dialTime = 5 * time.Second
	// retryAfter is between two questions of who waits for its turn.
	retryAfter = time.Second
	// maxUnansweredTries is how often all addresses are asked while none answers.
	maxUnansweredTries = 3
)

// joinByToken shows the token at its addresses until one of them admits the directory. It waits for
// its turn as long as ctx lasts, and gives up when no address answers.
func joinByToken(ctx context.Context, d *directory, cfg Config, t Token) (answer, error) {
	addresses := slices.Clone(cfg.Addresses)
	for _, a := range t.Addresses {
		if !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	if len(addresses) == 0 {
		return answer{}, model.InvalidField("join", "", "must be host:port of a member")
	}
	pool := transport.Pool(jointoken.Pinned(t.Authority), 1, dialTime)
	defer pool.CloseIdleConnections()
	c := &http.Client{Transport: pool, Timeout: enrollmentTimeout + dialTime}
	q := request{ID: t.ID, Secret: t.Secret, Dir: d.ID, Name: d.Name, Peer: d.Peer, EnrollmentAddress: cfg.EnrollmentAddress, Secure: cfg.Secure != nil}
	told := ""
	for silent := 0; ; {
		body, err := q.encode(cfg.Forming)
		if err != nil {
			return answer{}, err
		}
		a, err := askAll(ctx, c, addresses, len(cfg.Addresses), body)
		switch {
		case errors.Is(err, errNoAnswer):
			if silent++; silent >= maxUnansweredTries {
				return answer{}, model.Errorf(model.ErrUnavailable, "%w", err)
			}
		case err != nil:
			return answer{}, err
		case a.Wait == "":
			return a, nil
		default:
			silent = 0
			if a.Wait != told {
				cfg.Logger.Info("joining waits", "for", a.Wait)
				told = a.Wait
			}
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			if told != "" {
				return answer{}, model.Errorf(model.ErrUnavailable, "joining waits for %s: %w; repeat the command line", told, ctx.Err())
			}
			return answer{}, model.Errorf(model.ErrUnavailable, "no netmaster has accepted this host: %w; repeat the command line", ctx.Err())
		}
	}
}

// encode is the request in JSON. Without a token of the cluster's it has the service account's,
// which may have changed since it was read last.
func (q request) encode(f Forming) (_ []byte, err error) {
	if q.ID == "" {
		if q.Account, err = f.Token(); err != nil {
			return nil, fmt.Errorf("read the token of the service account: %w", err)
		}
	}
	return json.Marshal(q)
}

// errNoAnswer: no member that could decide has answered.
var errNoAnswer = errors.New("no member answers")

// askAll asks one address after the other for a decision. Where one of the first named, which
// a person has named, is of another cluster than the token, the others are not asked: it is
// not known which of the two clusters was meant.
func askAll(ctx context.Context, c *http.Client, addresses []string, named int, body []byte) (answer, error) {
	var why []string
	foreign := 0
	for i, addr := range addresses {
		var a answer
		err := jointoken.Call(ctx, c, http.MethodPost, transport.HTTPS+"://"+addr+joinPath, bytes.NewReader(body), &a)
		switch {
		case err == nil:
			return a, nil
		case errors.Is(err, jointoken.ErrOtherCluster):
			foreign++
			why = append(why, addr+" belongs to another cluster than the token (its authority differs), so the token was not sent: give an address of the token's cluster, or make a token there")
			if i < named {
				return answer{}, model.Errorf(model.ErrConflict, "%s", strings.Join(why, "; "))
			}
		case errors.Is(err, model.ErrUnavailable):
			why = append(why, addr+" says: "+err.Error())
		case jointoken.IsKind(err):
			return a, fmt.Errorf("%s refuses: %w", addr, err)
		default:
			why = append(why, fmt.Sprintf("%s does not answer (%v): see that netmaster runs there, and that nothing is between", addr, err))
		}
	}
	if foreign == len(addresses) {
		return answer{}, model.Errorf(model.ErrConflict, "%s", strings.Join(why, "; "))
	}
	return answer{}, fmt.Errorf("%w: %s", errNoAnswer, strings.Join(why, "; "))
}
