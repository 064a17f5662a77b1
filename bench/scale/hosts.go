package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// vxlanPort is the VXLAN port of agents whose configuration names none (RFC 7348).
const vxlanPort = 4789

// keepHost has netmaster keep a host whose agent was there before and is not now, as
// all have one that an endpoint was made on: else each agent that begins would have a
// problem for each endpoint on one that has not begun yet.
func keepHost(ctx context.Context, c *api.Client, z sizes, n int) error {
	at := z.vtep(n).String()
	r := api.HostReport{
		Version: api.HostReportVersion, Host: hostName(n), Installation: installation(n), Since: time.Now().UTC().Format(time.RFC3339),
		Control: at, VTEP: at, VXLANPort: vxlanPort, Driver: "fake", Format: model.HostFormat, Confirms: true, Look: true,
	}
	var kept api.HostReportResponse
	if err := c.Do(ctx, http.MethodPost, "/plugin/host", r, &kept); err != nil {
		return err
	}
	if kept.Taken != "" {
		return model.Errorf(model.ErrConflict, "%s", kept.Taken)
	}
	r.Leaving = true
	return c.Do(ctx, http.MethodPost, "/plugin/host", r, nil)
}

// installation is the UUID of a host's state directory.
func installation(n int) string { return uuid.NewSHA1(uuid.Nil, []byte(hostName(n))).String() }

// writeInstallation writes into the state directory that an agent with the host's name has
// used it.
func writeInstallation(n int, dir string) error {
	b, err := json.Marshal(map[string]any{"version": 1, "id": installation(n), "since": time.Now().UTC().Format(time.RFC3339), "host": hostName(n)})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "installation.json"), b, 0o600)
}
