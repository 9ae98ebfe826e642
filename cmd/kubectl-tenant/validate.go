package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/leaving"
)

func newValidateCommand(flags *client.Flags) *cobra.Command {
	o := validateOptions{flags: flags, format: output.NewFormat()}
	cmd := &cobra.Command{
		Use:   "validate {-f FILE | --cluster}",
		Short: "Check a configuration, a Revocation or a cluster's bindings",
		Long: `Reads a TenancyConfiguration and every file that it names, or a Revocation, by
the code that the server reads them with, and prints every problem at its field.

With --cluster, and in files that "kubectl get -o yaml" wrote, it also reports
the objects that mean more on a server without kubetenant:

- a ClusterRoleBinding to a group "tenant:..."
- a ClusterRoleBinding "kubetenant:admins:..." that an earlier release created
- a RoleBinding or ClusterRoleBinding with the annotation kubetenant.dev/scope
  or kubetenant.dev/expires
- a Namespace of authorization.systemNamespaces that has the label of a tenant

RoleBindings in a namespace of a tenant are one line a namespace and
annotation, with one example and the number of the others.

Such a server ignores the annotations and confines no tenant. --cluster reads
ClusterRoleBindings, RoleBindings and Namespaces page by page, and writes
nothing. The system namespaces are those of the TenancyConfiguration that is
given as a file, or that the server publishes, or else the default ones. Here
--cluster takes no name. Choose the cluster with --context.

Exit status: 0 nothing is wrong, 1 something is, 2 something could not be read.`,
		Example: `  kubectl tenant validate -f tenancy.yaml
  kubectl tenant validate -f tenancy.yaml -o json
  kubectl tenant validate --cluster
  kubectl get clusterrolebindings,rolebindings,namespaces -A -o yaml > objects.yaml
  kubectl tenant validate -f tenancy.yaml -f objects.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	cmd.Flags().StringSliceVarP(&o.files, "filename", "f", nil,
		"file to check: a TenancyConfiguration, a Revocation, or objects of a cluster (may be repeated)")
	cmd.Flags().BoolVar(&o.cluster, "cluster", false, "check the cluster that the kubeconfig names")
	o.format.AddFlags(cmd)
	cmd.MarkFlagsOneRequired("filename", "cluster")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

// validateOptions holds the flags of validate and its findings.
type validateOptions struct {
	flags   *client.Flags
	files   []string
	cluster bool
	format  *output.Format

	found    []validation
	warnings []string
	unread   error
	// systemNamespaces are those of a TenancyConfiguration among the files. It is nil if there is
	// none.
	systemNamespaces []string
}

// validation holds the findings about one file or the cluster. The file or cluster is valid if all
// lists are empty.
type validation struct {
	File      string            `json:"file,omitempty"`
	Cluster   string            `json:"cluster,omitempty"`
	Problems  []string          `json:"problems"`
	Findings  []leaving.Finding `json:"findings,omitempty"`
	Unchecked []string          `json:"unchecked,omitempty"` // what could not be read
}

func (o *validateOptions) run(cmd *cobra.Command) error {
	if err := o.format.Check(); err != nil {
		return err
	}
	exports := map[int][]byte{} // by the index of their validation
	for _, file := range o.files {
		data, err := os.ReadFile(file) // #nosec G304 -- the caller names it
		if err != nil {
			o.unread = errors.Join(o.unread, err)
			continue
		}
		if leaving.IsExport(data) {
			exports[len(o.found)] = data
			o.found = append(o.found, validation{File: file, Problems: []string{}})
			continue
		}
		o.configuration(cmd.Context(), file)
	}
	for i := range o.found {
		if data, is := exports[i]; is {
			o.export(&o.found[i], data)
		}
	}
	if o.cluster {
		if err := o.live(cmd); err != nil {
			o.unread = errors.Join(o.unread, err)
		}
	}
	if err := printValidations(cmd.OutOrStdout(), o.found, o.format); err != nil {
		return err
	}
	for _, text := range o.warnings {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", text)
	}
	if o.unread != nil {
		return o.unread
	}
	for _, v := range o.found {
		if len(v.Problems)+len(v.Findings) > 0 {
			return errFailed
		}
	}
	return nil
}

// configuration checks a TenancyConfiguration or a Revocation.
func (o *validateOptions) configuration(ctx context.Context, file string) {
	err := kubetenant.Check(quiet(ctx), file)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		o.unread = errors.Join(o.unread, err)
		return
	}
	o.found = append(o.found, validation{File: file, Problems: problems(file, err)})
	if config, err := configv1alpha1.Load(file); err == nil {
		o.systemNamespaces = config.Authorization.SystemNamespaces
		for _, text := range config.Warnings() {
			o.warnings = append(o.warnings, file+": "+text)
		}
	}
}

// export checks objects of a cluster that were written to a file.
func (o *validateOptions) export(v *validation, data []byte) {
	namespaces := o.systemNamespaces
	if namespaces == nil {
		namespaces = defaultSystemNamespaces()
	}
	var err error
	if v.Findings, err = leaving.Exported(data, namespaces); err != nil {
		v.Unchecked = []string{err.Error()}
		o.unread = errors.Join(o.unread, fmt.Errorf("%s could not be checked: %w", v.File, err))
	}
}

// live checks the objects of the cluster. It returns an error if it cannot read some of them.
func (o *validateOptions) live(cmd *cobra.Command) error {
	c, err := o.flags.Cluster()
	if err != nil {
		return err
	}
	k, err := c.Kube()
	if err != nil {
		return err
	}
	namespaces, err := o.publishedNamespaces(cmd.Context(), k)
	var unchecked []error
	switch {
	case errors.Is(err, errNamespacesUnknown):
		unchecked = append(unchecked, err)
	case err != nil:
		return c.Explain(err)
	}
	v := validation{Cluster: c.Name, Problems: []string{}}
	found, unread := leaving.Cluster(cmd.Context(), k, namespaces)
	unchecked, v.Findings = append(unchecked, unread...), found
	for _, err := range unchecked {
		v.Unchecked = append(v.Unchecked, err.Error())
	}
	o.found = append(o.found, v)
	return errors.Join(unchecked...)
}

// errNamespacesUnknown means that the system namespaces of a cluster are unknown.
var errNamespacesUnknown = errors.New("system Namespaces could not be checked: " +
	"the configuration that the server publishes cannot be read (give it with -f tenancy.yaml)")

// publishedNamespaces returns the system namespaces of the cluster. Its error is
// [errNamespacesUnknown] or an error of the client.
func (o *validateOptions) publishedNamespaces(ctx context.Context, k kubernetes.Interface) ([]string, error) {
	if o.systemNamespaces != nil {
		return o.systemNamespaces, nil
	}
	unknown := false
	for _, namespace := range []string{metav1.NamespaceSystem, installation.WebhookNamespace} {
		p, err := cluster.PublishedConfiguration(ctx, k, namespace)
		switch {
		case err == nil:
			return p.Settings.Authorization.SystemNamespaces, nil
		case apierrors.IsForbidden(err), errors.Is(err, configv1alpha1.ErrNotPublished):
			unknown = true
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	if unknown {
		return nil, errNamespacesUnknown
	}
	o.warnings = append(o.warnings,
		"no server publishes its configuration: the default systemNamespaces are assumed (give others with -f tenancy.yaml)")
	return defaultSystemNamespaces(), nil
}

func defaultSystemNamespaces() []string {
	s := configv1alpha1.Settings{}
	configv1alpha1.Default(&s)
	return s.Authorization.SystemNamespaces
}

// problems returns each of the errors that err is made of, without the name of the file before it.
func problems(file string, err error) []string {
	out := []string{}
	var all utilerrors.Aggregate
	switch {
	case err == nil:
	case errors.As(err, &all):
		for _, e := range all.Errors() {
			out = append(out, e.Error())
		}
	default:
		out = append(out, strings.TrimPrefix(err.Error(), file+": "))
	}
	return out
}

func printValidations(w io.Writer, found []validation, format *output.Format) error {
	value := map[string]any{"files": found}
	if last := len(found) - 1; last >= 0 && found[last].Cluster != "" {
		value = map[string]any{"files": found[:last], "cluster": found[last]}
	}
	if done, err := format.Value(w, "Validation", value); done {
		return err
	}
	for _, v := range found {
		name := v.File
		if v.Cluster != "" {
			name = "cluster " + v.Cluster
		}
		lines := v.Problems
		for _, f := range v.Findings {
			lines = append(lines, f.String())
		}
		if len(lines)+len(v.Unchecked) == 0 {
			lines = []string{"valid"}
		}
		for _, line := range lines {
			if _, err := fmt.Fprintf(w, "%s: %s\n", name, line); err != nil {
				return err
			}
		}
	}
	return nil
}
