"""An AWS account on this computer: moto, and CloudFormation models for what moto cannot create.

Faked, because moto's CloudFormation does not know the type:

- AWS::EC2::PlacementGroup (a name that EC2 would have made)
- AWS::EC2::SecurityGroupEgress (becomes a real rule of moto's EC2)
- AWS::EKS::Cluster and AWS::EKS::Nodegroup (become real ones of moto's EKS)
- AWS::EKS::AccessEntry, AWS::EKS::Addon, AWS::EKS::PodIdentityAssociation (recorded)
- AWS::FSx::FileSystem (becomes a real one of moto's FSx)
- AWS::FSx::DataRepositoryAssociation (recorded)
- AWS::S3::BucketPolicy (recorded; only `cdk bootstrap` makes one)
- Custom::AWSCDK-EKS-HelmChart and Custom::AWSCDK-EKS-KubernetesResource (recorded: neither
  helm nor kubectl runs)

Repaired, because moto 5.2.5 has the type and fails on it: AWS::EC2::EIP and AWS::EC2::RouteTable
(were never deleted), AWS::KMS::Key (its tags), AWS::Lambda::LayerVersion (its Ref),
AWS::SSM::Parameter (one without a name), and the outputs of a deleted stack. Amazon's public
parameters for node images hold the id of an image that was registered here.

What is not shown by a stack that deploys here: that AWS accepts the values beyond the few rules
of the fakes, that instances boot and join, and anything that happens inside the cluster.
"""
