// Probe kernels of the attention family: what a compiler makes of them covers most instructions that are executed here.
#define G extern "C" __attribute__((global))
#define D __attribute__((device))
#define S __attribute__((shared))
typedef _Float16 h2 __attribute__((ext_vector_type(2)));
typedef _Float16 h8 __attribute__((ext_vector_type(8)));
D unsigned tid(){return __builtin_amdgcn_workitem_id_x();}
D unsigned bid(){return __builtin_amdgcn_workgroup_id_x();}
G void vadd(const float*a,const float*b,float*c,int n){unsigned i=bid()*64+tid();if(i<n)c[i]=a[i]*2.0f+b[i];}
G void attn(const h8*q,const h8*k,const h8*v,_Float16*o,int n,float scale){
 S float sm[8*64]; float m=-__builtin_inff(),l=0,acc[8]={};
 h8 qq=q[tid()];
 for(int j=0;j<n;j++){h8 kk=k[(long)j*64+tid()];float s=0;
  for(int x=0;x<4;x++){h2 a={qq[2*x],qq[2*x+1]},b={kk[2*x],kk[2*x+1]};s=__builtin_amdgcn_fdot2(a,b,s,false);}
  s+=__builtin_bit_cast(float,__builtin_amdgcn_update_dpp(0,__builtin_bit_cast(int,s),0xb1,0xf,0xf,true));
  s+=__builtin_bit_cast(float,__builtin_amdgcn_update_dpp(0,__builtin_bit_cast(int,s),0x4e,0xf,0xf,true));
  s+=__builtin_bit_cast(float,__builtin_amdgcn_update_dpp(0,__builtin_bit_cast(int,s),0x141,0xf,0xf,true));
  s+=__builtin_bit_cast(float,__builtin_amdgcn_ds_bpermute((tid()^16)*4,__builtin_bit_cast(int,s)));
  s*=scale;float mn=__builtin_fmaxf(m,s);float c=__builtin_amdgcn_exp2f(m-mn),p=__builtin_amdgcn_exp2f(s-mn);m=mn;l=l*c+p;
  h8 vv=v[(long)j*64+tid()];
  for(int x=0;x<8;x++)acc[x]=acc[x]*c+p*(float)vv[x];}
 for(int x=0;x<8;x++)sm[x*64+tid()]=acc[x]; __builtin_amdgcn_fence(__ATOMIC_RELEASE,"workgroup");__builtin_amdgcn_s_barrier();__builtin_amdgcn_fence(__ATOMIC_ACQUIRE,"workgroup");
 float t=0;for(int x=0;x<8;x++)t+=sm[x*64+(tid()^1)];
 o[bid()*64+tid()]=(_Float16)(t/l);}
G void idiv(const int*a,const int*b,int*c,const long*x,long*y,unsigned*w){unsigned i=bid()*64+tid();c[i]=a[i]/b[i]+a[i]%b[i];y[i]=x[i]*a[i]+(x[i]/b[i]);w[i]=(unsigned)a[i]/7u+(unsigned)b[i]%10u;}
G void scr(const int*a,int*c,int n){int arr[32];for(int i=0;i<32;i++)arr[i]=a[tid()+i]*i;int k=0;for(int i=0;i<n;i++){k=arr[(k+i*7)&31]^k;arr[(k>>3)&31]+=i;}c[tid()]=k;}
G void bytes(const unsigned char*a,const signed char*b,unsigned short*c,unsigned char*d,const _Float16*h,_Float16*g,double*dd){unsigned i=tid();c[i]=a[i]*b[i];d[i]=a[i]+3;g[i]=h[i]*h[i+1]+(_Float16)a[i];g[i+64]=(_Float16)((float)h[i]*0.3f);dd[i]=(double)a[i]/3.0+__builtin_sqrt((double)b[i]);}
G void red(const float*a,float*c,int n){S float sm[64];float s=0;for(int i=tid();i<n;i+=64)s+=a[i];sm[tid()]=s;__builtin_amdgcn_s_barrier();for(int k=32;k>0;k>>=1){if(tid()<k)sm[tid()]+=sm[tid()+k];__builtin_amdgcn_fence(__ATOMIC_RELEASE,"workgroup");__builtin_amdgcn_s_barrier();__builtin_amdgcn_fence(__ATOMIC_ACQUIRE,"workgroup");}if(tid()==0)c[bid()]=sm[0];}
