package gateway

import (
	"fmt"
	"os"
	"syscall"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// auditing is where requests are recorded, and which. The zero value records none.
type auditing struct {
	sink   audit.Sink
	policy audit.PolicyRuleEvaluator
	path   string
	// policyFile is that of the policy, and policyText what stood in it.
	policyFile string
	policyText fingerprint
}

// openAuditing reads a policy, nil for none, and opens its log, unless it is the one that is open.
func (g *Gateway) openAuditing(config *configv1alpha1.GatewayAudit) (*auditing, error) {
	if config == nil {
		return &auditing{}, nil
	}
	text := fingerprintOf(config.PolicyFile) // first, so that a later change of the file is noticed
	rules, err := policy.LoadPolicyFromFile(config.PolicyFile)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	for i, rule := range rules.Rules {
		if auditinternal.LevelMetadata.Less(rule.Level) {
			return nil, fmt.Errorf("audit: %s: rules[%d].level: %s is not supported: use None or Metadata, since only "+
				"clusters record bodies",
				config.PolicyFile, i, rule.Level)
		}
	}
	out := &auditing{
		policy:     policy.NewPolicyRuleEvaluator(rules),
		path:       config.LogPath,
		policyFile: config.PolicyFile,
		policyText: text,
	}
	if before := g.current.Load(); before != nil && before.auditing.path == out.path {
		out.sink = before.auditing.sink
		return out, nil
	}
	log, err := openLog(config)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	out.sink = auditLog{log}
	return out, nil
}

// openLog opens the log to write on. Requests that go on for long tell of their end there: who lets
// go of it last, closes it.
func openLog(config *configv1alpha1.GatewayAudit) (*wholeLines, error) {
	if config.LogPath == "-" {
		return &wholeLines{out: os.Stdout}, nil
	}
	file, err := os.OpenFile(config.LogPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &wholeLines{out: file, torn: endsTorn(file)}, nil
}

// endsTorn reports whether a file ends within a line, as one does after a crash. Of one that cannot
// be read that is not known.
func endsTorn(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	// which does not wait, whatever has the name by now
	reader, err := os.OpenFile(file.Name(), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = reader.Close() }()
	if is, err := reader.Stat(); err != nil || !os.SameFile(is, info) {
		return false
	}
	last := make([]byte, 1)
	_, err = reader.ReadAt(last, info.Size()-1)
	return err == nil && last[0] != '\n'
}
