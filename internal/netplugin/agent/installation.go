package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
)

// installation is who this agent is, whatever the host is called: it is made
// when a state directory is used for the first time.
type installation struct {
	Version int    `json:"version"` // 1
	ID      string `json:"id"`      // a UUID
	Since   string `json:"since"`   // RFC 3339
	// Host is the name of a host that this installation was the last to have; "" = none
	// yet. Under it, it programs its data plane before any netmaster answers.
	Host model.HostName `json:"host,omitempty"`
}

const installationFile = "installation.json"

// openInstallation reads a state directory's installation, or makes one. A file
// that holds none is set aside: whether the host's name is still this one's is
// then for claim to find out.
func openInstallation(dir string, log *slog.Logger) (installation, error) {
	path := filepath.Join(dir, installationFile)
	var i installation
	data, err := os.ReadFile(path)
	if err == nil {
		if err = json.Unmarshal(data, &i); err == nil && (i.Version != 1 || uuid.Validate(i.ID) != nil) {
			err = errors.New("it is not an installation of version 1")
		}
		if err == nil {
			return i, nil
		}
		log.Error("the installation's identity cannot be read; a new one is created", "file", path, "error", err)
		if err := os.Rename(path, path+".bad"); err != nil {
			return i, fmt.Errorf("move %s away: %w", path, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return i, fmt.Errorf("read the installation's identity: %w", err)
	}
	i = installation{Version: 1, ID: uuid.NewString(), Since: time.Now().UTC().Format(time.RFC3339)}
	if err := durable.WriteJSON(path, i); err != nil {
		return i, fmt.Errorf("write the installation's identity: %w", err)
	}
	return i, nil
}

// remember writes that the installation has a host's name.
func (i installation) remember(dir string, name model.HostName) error {
	if i.Host == name {
		return nil
	}
	i.Host = name
	if err := durable.WriteJSON(filepath.Join(dir, installationFile), i); err != nil {
		return fmt.Errorf("write the installation's identity: %w", err)
	}
	return nil
}
