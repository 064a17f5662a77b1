package installer

import "context"

// StartNetmaster begins a cluster on the machine, and returns when netmaster is ready.
func (m *Machine) StartNetmaster(ctx context.Context, p Plan) error {
	u := p.netmaster()
	if err := m.appendSettings(u); err != nil {
		return err
	}
	return m.start(ctx, u)
}

// StartNetplugin has the host join by the plan's token, and returns when it can attach
// containers. Afterwards the machine does not have the token.
func (m *Machine) StartNetplugin(ctx context.Context, p Plan) error {
	u := p.netplugin(m.hasDocker())
	if err := m.appendSettings(u); err != nil {
		return err
	}
	if err := m.setToken(u, p.Token); err != nil {
		return err
	}
	if err := m.start(ctx, u); err != nil {
		return err
	}
	return m.setToken(u, "")
}
