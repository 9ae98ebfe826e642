// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/kubeconfig"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

// genOptions are the flags of gen-kubeconfig.
type genOptions struct {
	flags                        *client.Flags
	user, serviceAccount, tenant string
	groups, audiences            []string
	oidc, tenantPath             bool
	issuer, clientID, issuerCA   string
	authority                    []byte // the content of issuerCA
	storage                      string
	scopes                       []string
	until                        string
	expires, wait                time.Duration
	out, merge, mode             string
	gateway                      gatewayOptions
}

func newGenKubeconfigCommand(flags *client.Flags) *cobra.Command {
	o := &genOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "gen-kubeconfig (--user U --tenant T | --serviceaccount SA -n NS | --oidc --tenant T)",
		Short: "Create a kubeconfig for a user or service account",
		Long: `Creates a self-contained kubeconfig: the server's address, its certificate
authority, and a credential.

--user creates a client certificate with a CertificateSigningRequest. Only the
cluster's admin can usually create one. If you may approve it, the command does
so. Otherwise it waits until another admin approves it.

--serviceaccount requests a token for a service account. An admin of a tenant
can do this.

--oidc creates a kubeconfig without a credential. It logs in to an OpenID
provider when it is used (see kubectl tenant login).

With --gateway, the kubeconfig has a context for each cluster behind a gateway.

The kubeconfig is printed to standard output, unless --out or --merge is set.`,
		Example: `  kubectl tenant gen-kubeconfig --user alice --group dev --tenant acme --out alice.kubeconfig
  kubectl tenant gen-kubeconfig --serviceaccount robot -n acme--web --expires 1h --merge ~/.kube/config
  kubectl tenant gen-kubeconfig --oidc --tenant acme --issuer-url https://login.example.com --client-id kubectl
  kubectl tenant gen-kubeconfig --user alice --tenant acme --gateway https://gateway.example.com --cluster eu1,us1 ` +
			`--merge ~/.kube/config`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.user, "user", "", "user name for a client certificate")
	f.StringSliceVar(&o.groups, "group", nil, "groups of the user (may be repeated)")
	f.StringVar(&o.tenant, "tenant", "", "tenant of the user; for a service account, the namespace determines the tenant")
	f.StringVar(&o.serviceAccount, "serviceaccount", "", "service account: NAME in the namespace of -n, or NAMESPACE/NAME")
	f.StringSliceVar(&o.audiences, "audience", nil,
		"audiences of the service account's token (default: the server's own)")
	f.BoolVar(&o.oidc, "oidc", false, "log in to an OpenID provider")
	f.StringVar(&o.issuer, "issuer-url", "", "with --oidc: issuer URL of the provider")
	f.StringVar(&o.clientID, "client-id", "", "with --oidc: client ID registered with the provider")
	f.StringVar(&o.issuerCA, "issuer-ca", "", "with --oidc: file with the certificate authority of the provider "+
		"(default: the system's)")
	addStorage(cmd, &o.storage)
	f.StringSliceVar(&o.scopes, "scope", nil, "with --oidc: scopes to request in addition to openid")
	f.StringVar(&o.until, "expires", "24h",
		"lifetime of the credential, such as 8h, or end time, such as 2030-01-31T18:00:00Z; the server may shorten it")
	f.DurationVar(&o.wait, "wait", time.Minute, "how long to wait for a certificate")
	f.BoolVar(&o.tenantPath, "tenant-path", false,
		"append the tenant's path to the server address, if the server supports it; grants of other tenants and the policy "+
			"file do not apply there")
	f.StringVar(&o.out, "out", "", "file to create, readable only by you")
	f.StringVar(&o.merge, "merge", "", "existing kubeconfig file to add the context to")
	addDryRun(cmd, &o.mode)
	o.gateway.addFlags(cmd)
	cmd.MarkFlagsMutuallyExclusive("user", "serviceaccount", "oidc")
	cmd.MarkFlagsOneRequired("user", "serviceaccount", "oidc")
	cmd.MarkFlagsMutuallyExclusive("out", "merge")
	_ = cmd.RegisterFlagCompletionFunc("tenant", o.flags.CompleteTenants)
	_ = cmd.RegisterFlagCompletionFunc("user", o.flags.CompleteUsers)
	_ = cmd.RegisterFlagCompletionFunc("group", o.flags.CompleteGroups)
	return cmd
}

// check validates the flags before the first request.
func (o *genOptions) check() (id tenant.ID, err error) {
	var problems []error
	switch {
	case o.user != "":
		problems = append(problems, client.CheckUser("--user", o.user))
		for _, group := range o.groups {
			problems = append(problems, client.CheckUser("--group", group))
			if strings.HasPrefix(group, tenant.GroupPrefix) || strings.HasPrefix(group, "system:") {
				problems = append(problems,
					fmt.Errorf("--group %q: groups that start with \"system:\" or %q are reserved", group, tenant.GroupPrefix))
			}
		}
	case o.serviceAccount != "":
		name := o.serviceAccount
		if namespace, rest, found := strings.Cut(name, "/"); found {
			name = rest
			problems = append(problems, client.CheckNamespace("--serviceaccount", namespace))
		}
		problems = append(problems, client.CheckObject("--serviceaccount", name))
	case !strings.HasPrefix(o.issuer, "https://"):
		problems = append(problems, errors.New("--oidc needs --client-id, and --issuer-url with an https:// address"))
	case o.issuer == "" || o.clientID == "":
		problems = append(problems, errors.New("--oidc needs --issuer-url and --client-id"))
	}
	problems = append(problems, o.readAuthority(), checkStorage(o.storage), o.gateway.check())
	if o.serviceAccount != "" {
		problems = append(problems, o.gateway.checkServiceAccount())
	}
	if o.user == "" && len(o.groups) > 0 {
		problems = append(problems, errors.New("--group needs --user"))
	}
	if !o.oidc && (o.issuer != "" || o.clientID != "" || o.issuerCA != "" || len(o.scopes) > 0) {
		problems = append(problems, errors.New("--issuer-url, --client-id, --issuer-ca and --scope need --oidc"))
	}
	if o.serviceAccount == "" && len(o.audiences) > 0 {
		problems = append(problems, errors.New("--audience needs --serviceaccount"))
	}
	if o.tenant == "" && o.serviceAccount == "" {
		problems = append(problems, errors.New("--tenant is required (for the cluster's own identities, use system)"))
	} else if o.tenant != "" {
		id, err = client.ParseTenant("--tenant", o.tenant)
		problems = append(problems, err)
	}
	if o.user != "" && err == nil && !id.IsSystem() && strings.HasPrefix(o.user, "system:") {
		problems = append(problems, fmt.Errorf("--user %q: user names that start with \"system:\" are reserved for the "+
			"system tenant", o.user))
	}
	now := time.Now()
	until, notUntil := endOf(o.until, now)
	problems = append(problems, checkDryRun(o.mode), notUntil)
	if o.expires, err = client.ParseDuration(o.until); err != nil {
		o.expires = until.Sub(now)
	}
	return id, errors.Join(problems...)
}

func (o *genOptions) run(cmd *cobra.Command) error {
	id, err := o.check()
	if err != nil {
		return err
	}
	c, err := o.cluster()
	if err != nil {
		return err
	}
	if namespace, name, found := strings.Cut(o.serviceAccount, "/"); found {
		c.Namespace, o.serviceAccount = namespace, name
	}
	if o.out != "" {
		if err := kubeconfig.CheckNotExists(o.out); err != nil {
			return err // before a credential is created
		}
	}
	config, err := o.make(cmd, c, id)
	if err != nil {
		return c.Explain(err)
	}
	message := "context %s written to %s%s\n"
	switch {
	case config == nil: // a dry run
		return nil
	case o.out != "":
		err = kubeconfig.Write(o.out, config)
	case o.merge != "":
		var replaced bool
		if replaced, err = kubeconfig.Merge(o.merge, config); replaced {
			message = "context %s replaced in %s%s\n"
		}
	default:
		text, err := clientcmd.Write(*config)
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), message, contexts(config), o.out, o.merge)
	return err
}

// make returns the kubeconfig. In a dry run, it returns nil.
func (o *genOptions) make(cmd *cobra.Command, c *client.Cluster, id tenant.ID) (*clientcmdapi.Config, error) {
	k, err := c.Kube()
	if err != nil {
		return nil, err
	}
	e := &kubeconfig.Entry{
		Cluster: c.Server,
		User:    o.user,
		Tenant:  id,
		Auth:    clientcmdapi.NewAuthInfo(),
	}
	authenticate := o.byLogin
	switch {
	case o.user != "":
		authenticate = o.byCertificate
	case o.serviceAccount != "":
		authenticate = o.byAccount
	}
	if err := authenticate(cmd, c, k, e); err != nil || o.mode != "" {
		return nil, err
	}
	if c.Config.Insecure && o.gateway.ca == "" {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(),
			"warning: this kubeconfig does not verify the server's certificate, "+
				"because your own kubeconfig sets insecure-skip-tls-verify")
	}
	narrowed := e.Tenant
	if !o.tenantPath {
		narrowed = tenant.System() // the system tenant has no tenant path
	}
	if o.gateway.url != "" {
		if client.Changed(cmd.Flags(), "namespace") {
			e.Namespace = c.Namespace
		}
		return o.gateway.place(e, c.Config, narrowed)
	}
	if e.Server, err = c.TenantURL(cmd.Context(), narrowed); err != nil {
		return nil, err
	}
	if o.serviceAccount == "" {
		e.Namespace = firstNamespace(cmd, c, k, e.Tenant)
	}
	return kubeconfig.New(e, c.Config)
}

// byCertificate requests a certificate for an entry. In a client-side dry run, it only prints the
// request.
func (o *genOptions) byCertificate(
	cmd *cobra.Command, c *client.Cluster, k kube.Interface, e *kubeconfig.Entry,
) (err error) {
	request := &kubeconfig.Request{
		User:    o.user,
		Groups:  o.groups,
		Tenant:  e.Tenant,
		Expiry:  o.expires,
		Timeout: o.wait,
		DryRun:  o.mode == dryRunServer,
	}
	if len(o.groups) > 0 && o.gateway.url == "" { // kubetenant reads the groups from OU
		found, err := c.Installation(cmd.Context())
		if err != nil {
			return err
		}
		// An upstream server reads the groups from the organizations (O) of the certificate.
		request.AsOrganizations = found.Mode == installation.Webhook || found.Direct
	}
	defer showProgress(cmd, request)()
	if o.mode != "" {
		return o.tryCertificate(cmd.Context(), cmd, k, request)
	}
	e.Auth.ClientCertificateData, e.Auth.ClientKeyData, err = request.Sign(cmd.Context(), k)
	return err
}

// byAccount adds the token of a service account and its tenant to an entry. In a dry run, it prints
// the request.
func (o *genOptions) byAccount(
	cmd *cobra.Command, c *client.Cluster, k kube.Interface, e *kubeconfig.Entry,
) error {
	wantTenant := e.Tenant
	e.User = c.Namespace + ":" + o.serviceAccount
	e.Namespace = c.Namespace
	var err error
	if e.Tenant, err = ownerOf(cmd.Context(), c, k, c.Namespace); err != nil {
		return err
	}
	if !wantTenant.IsZero() && wantTenant != e.Tenant {
		return fmt.Errorf("namespace %s and its service accounts do not belong to tenant %s", c.Namespace, wantTenant)
	}
	if o.mode == dryRunClient {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "would request a token for service account %s/%s, valid for %s (dry run)\n",
			c.Namespace, o.serviceAccount, o.expires)
		return err
	}
	if e.Auth.Token, err = o.token(cmd, c, k); err != nil || o.mode == "" {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "the server would issue a token for service account %s/%s (dry run)\n",
		c.Namespace, o.serviceAccount)
	return err
}

// byLogin sets the login command of an entry, which kubectl runs when it uses the entry. In a dry
// run, it prints the command.
func (o *genOptions) byLogin(cmd *cobra.Command, _ *client.Cluster, _ kube.Interface, e *kubeconfig.Entry) error {
	e.User, e.Auth.Exec = "oidc", o.login()
	if o.mode == "" {
		return nil
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "would run %s %s (dry run)\n",
		e.Auth.Exec.Command, strings.Join(e.Auth.Exec.Args, " "))
	return err
}

// showProgress shows the progress of a request until done is called. Instructions for the user
// remain on the screen.
func showProgress(cmd *cobra.Command, request *kubeconfig.Request) (done func()) {
	progress := output.NewProgress(cmd.ErrOrStderr())
	request.Printf = func(format string, args ...any) {
		if strings.Contains(format, "approve") {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
			return
		}
		progress.Update(format, args...)
	}
	return progress.Done
}

func (o *genOptions) tryCertificate(
	ctx context.Context, cmd *cobra.Command, k kube.Interface, r *kubeconfig.Request,
) error {
	key, err := kubeconfig.NewKey()
	if err != nil {
		return err
	}
	if _, err := r.Object(key); err != nil {
		return err
	}
	verb := "would request"
	if r.DryRun {
		verb = "the server would accept a request for"
		if _, _, err := r.Sign(ctx, k); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s a certificate for %s, valid for %s (dry "+
		"run)\n", verb, r.Subject(), r.Expiry)
	return err
}

// token requests a token for the service account.
func (o *genOptions) token(cmd *cobra.Command, c *client.Cluster, k kube.Interface) (string, error) {
	seconds := int64(o.expires.Seconds())
	options := metav1.CreateOptions{DryRun: dryRunOption(o.mode)}
	got, err := k.CoreV1().ServiceAccounts(c.Namespace).CreateToken(cmd.Context(), o.serviceAccount,
		&authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: o.audiences, ExpirationSeconds: &seconds},
		}, options)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("service account %s does not exist in namespace %s: create it with kubectl create "+
			"serviceaccount %s -n %s",
			o.serviceAccount, c.Namespace, o.serviceAccount, c.Namespace)
	}
	if err != nil {
		return "", err
	}
	if given := got.Spec.ExpirationSeconds; given != nil && *given < seconds {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: the server limits the token's lifetime to %s\n",
			time.Duration(*given)*time.Second)
	}
	return got.Status.Token, nil
}

// readAuthority reads the file of --issuer-ca, because the kubeconfig contains its content. A path
// would be valid only on this machine.
func (o *genOptions) readAuthority() (err error) {
	if o.issuerCA == "" {
		return nil
	}
	if o.authority, err = os.ReadFile(o.issuerCA); err != nil {
		return fmt.Errorf("--issuer-ca: %w", err)
	}
	if _, err := cert.ParseCertsPEM(o.authority); err != nil {
		return fmt.Errorf("--issuer-ca: %s contains no certificate", o.issuerCA)
	}
	return nil
}

// login returns the exec section of a kubeconfig for --oidc.
func (o *genOptions) login() *clientcmdapi.ExecConfig {
	args := []string{"login", "--issuer-url", o.issuer, "--client-id", o.clientID}
	if len(o.authority) > 0 {
		args = append(args, "--issuer-ca-data", base64.StdEncoding.EncodeToString(o.authority))
	}
	for _, scope := range o.scopes {
		args = append(args, "--scope", scope)
	}
	if o.storage != storageDisk {
		args = append(args, "--token-cache-storage", o.storage)
	}
	return &clientcmdapi.ExecConfig{
		APIVersion:      "client.authentication.k8s.io/v1",
		Command:         "kubectl-tenant",
		Args:            args,
		InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		InstallHint:     "kubectl-tenant is not installed: add it to your PATH",
	}
}

// firstNamespace returns the namespace of the context. This is the value of -n, or the only
// namespace of the tenant. If the tenant owns no namespace, firstNamespace prints a warning,
// because the name of the tenant may be misspelled.
func firstNamespace(cmd *cobra.Command, c *client.Cluster, k kube.Interface, id tenant.ID) string {
	if client.Changed(cmd.Flags(), "namespace") {
		return c.Namespace
	}
	if id.IsSystem() {
		return ""
	}
	list, err := k.CoreV1().Namespaces().List(cmd.Context(),
		metav1.ListOptions{LabelSelector: tenant.Label + "=" + id.String(), Limit: 2})
	switch {
	case err != nil:
		return "" // the caller may not list namespaces
	case len(list.Items) == 0:
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
			"warning: tenant %s has no namespace; to list the tenants, run kubectl tenant tenants\n", id)
	case len(list.Items) == 1:
		return list.Items[0].Name
	}
	return ""
}

// ownerOf returns the tenant that owns a namespace, from the label of the namespace. If the caller
// may not read the namespace, it returns the caller's tenant.
func ownerOf(ctx context.Context, c *client.Cluster, k kube.Interface, namespace string) (tenant.ID, error) {
	if err := client.CheckNamespace("-n", namespace); err != nil {
		return tenant.ID{}, err
	}
	ns, err := k.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		i, err := c.WhoAmI(ctx)
		if err != nil {
			return tenant.ID{}, err
		}
		return client.ParseTenant("your tenant", i.Tenant)
	case err != nil:
		return tenant.ID{}, err
	}
	if label, found := ns.Labels[tenant.Label]; found {
		return client.ParseTenant("the owner of namespace "+namespace, label)
	}
	return tenant.System(), nil
}
