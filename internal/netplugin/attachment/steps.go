package attachment

// The steps at which Hook is called, in their order within Attach and Detach.
const (
	StepJournalled     = "journalled" // intent is written down; nothing else exists
	StepVeth           = "veth"       // the pair exists
	StepCreated        = "created"    // netmaster has the endpoint
	StepConfigured     = "configured" // the container's side is configured
	StepProgrammed     = "programmed" // the data plane has the port
	StepDone           = "done"       // the journal says done; not answered yet
	StepPendingRelease = "owed"       // the journal says owed; nothing is removed yet
	StepVethGone       = "veth-gone"  // the pair is removed
	StepDeleted        = "deleted"    // netmaster has released the endpoint
	StepForgotten      = "forgotten"  // the journal has forgotten it; not answered yet
)

// Steps are all steps, for tests that walk them.
var Steps = []string{
	StepJournalled, StepVeth, StepCreated, StepConfigured, StepProgrammed, StepDone,
	StepPendingRelease, StepVethGone, StepDeleted, StepForgotten,
}
